// Scales of another engine made of a calibration table, and a table made of them. What a layout
// cannot hold apart gets the largest of the scales, so that nothing is clipped that was not before.
#ifndef TURBOQUANT_CALIBRATION_SCALE_CONVERSION_H_
#define TURBOQUANT_CALIBRATION_SCALE_CONVERSION_H_

#include <string>
#include <vector>

#include "base/error.h"
#include "calibration/calibration_table.h"
#include "calibration/scale_layout.h"

namespace turboquant {

// A part for each KV head, of the plain ranges: other engines do not rotate.
EngineScales ScalesOfTable(const CalibrationTable& table);

// What was lost by giving several scales the largest of them. One line each, for people.
using LossNotes = std::vector<std::string>;

// The same scales for another number of parts. Fewer parts: the largest of those that fall
// together. More: each is repeated. kInvalidArgument unless one number divides the other.
Result<EngineScales> WithParts(const EngineScales& scales, int num_parts, LossNotes* notes);

// K and V of each layer and part get the larger of both.
EngineScales WithOneFactor(EngineScales scales, LossNotes* notes);

// A table of the clip rule kImported for this model; every head has the range of its part.
// kInvalidArgument if the numbers of layers or heads, or the kind of model, do not fit.
// source: what it came from, for people.
Result<CalibrationTable> TableOfScales(const EngineScales& scales, const ModelFingerprint& model,
                                       const std::string& source, LossNotes* notes);

// kInvalidArgument unless the scales may be of that model.
[[nodiscard]] Status CheckScalesFit(const EngineScales& scales, const ModelFingerprint& model);

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_SCALE_CONVERSION_H_
