// How ggml's tensor types are stored in a file: from the format, not asked of ggml (a test
// compares).
#ifndef TURBOQUANT_MODEL_GGML_TYPES_H_
#define TURBOQUANT_MODEL_GGML_TYPES_H_

#include <cstdint>
#include <string_view>

namespace turboquant {

struct GgmlTypeInfo {
  uint32_t id;
  std::string_view name;  // "Q4_1"
  uint32_t block_size;    // values per block
  uint32_t type_size;     // bytes per block
  bool is_weight;         // may be the left side of a matrix product
};
const GgmlTypeInfo* FindGgmlType(uint32_t id);  // nullptr: unknown to this build

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_GGML_TYPES_H_
