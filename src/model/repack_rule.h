// Which weight types ggml multiplies faster from its repacked layout (8 rows interleaved) on this
// CPU.
#ifndef TURBOQUANT_MODEL_REPACK_RULE_H_
#define TURBOQUANT_MODEL_REPACK_RULE_H_

#include <cstdint>

#include "model/ggml_support.h"

namespace turboquant {

// ggml's repacking buffer type, or null where this build has none.
ggml_backend_buffer_type_t RepackBufferType();

// Whether ggml has a kernel for a repacked matrix of this type and shape on this CPU.
bool RepackIsPossible(ggml_type type, int64_t columns, int64_t rows);
// The measured rule, where it is possible at all.
bool RepackIsFaster(ggml_type type, int64_t columns, int64_t rows);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_REPACK_RULE_H_
