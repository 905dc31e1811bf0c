// The header of a GGUF as the ledger needs it: of the architectures that this build runs, and of
// others whose cache is known.
#ifndef TURBOQUANT_PLANNER_GGUF_SHAPE_H_
#define TURBOQUANT_PLANNER_GGUF_SHAPE_H_

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "planner/model_shape.h"

namespace turboquant {

// Errors as ReadModelShape.
Result<ModelShape> ReadGgufShape(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_GGUF_SHAPE_H_
