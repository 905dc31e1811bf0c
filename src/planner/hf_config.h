// The config.json of a Hugging Face model, as the transformers library reads it: names of fields,
// defaults of its classes, fields under "text_config" where a model has several parts.
#ifndef TURBOQUANT_PLANNER_HF_CONFIG_H_
#define TURBOQUANT_PLANNER_HF_CONFIG_H_

#include <string_view>

#include "base/error.h"
#include "planner/model_shape.h"

namespace turboquant {

// name: the path, for messages. kUnsupported: a model_type that is not known, or a feature of a
// known one that would change what is stored. kCorrupt: no JSON object, or a field missing, of
// another type or out of range.
Result<ModelShape> ReadHfConfig(std::string_view json, std::string_view name);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_HF_CONFIG_H_
