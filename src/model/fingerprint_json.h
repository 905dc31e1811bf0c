// The fingerprint of a model in JSON files that belong to one model, and the check that they do.
#ifndef TURBOQUANT_MODEL_FINGERPRINT_JSON_H_
#define TURBOQUANT_MODEL_FINGERPRINT_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "model/fingerprint.h"

namespace turboquant {

nlohmann::ordered_json ToJson(const ModelFingerprint& model);

// kInvalidArgument, without the path, where a field is missing or of the wrong kind.
Result<ModelFingerprint> ParseFingerprint(const nlohmann::ordered_json& json);

// kInvalidArgument unless `file` ("the calibration table") was made for this very model; says what
// differs.
[[nodiscard]] Status CheckSameModel(std::string_view file, const ModelFingerprint& made_for,
                                    const ModelFingerprint& is);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_FINGERPRINT_JSON_H_
