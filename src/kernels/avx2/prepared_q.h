// Form of prepared queries: what prepare_q.cc writes and qk.cc reads.
#ifndef TURBOQUANT_KERNELS_AVX2_PREPARED_Q_H_
#define TURBOQUANT_KERNELS_AVX2_PREPARED_Q_H_

#include "kernels/avx2/vec.h"

namespace turboquant::avx2 {

// PreparedQBytes of kernel_table.h, which as an inline function of a shared header must not be
// called here.
inline size_t RowBytes(int head_dim, int group_size) {
  return (4 * Size(head_dim) + 4 * Size(head_dim / group_size) + 64 + 63) / 64 * 64;
}

// Integer formats: codes in the order of formats.h, then the row's scale, then the sum of the codes
// of each group.
struct IntegerQ {
  int16_t* codes;  // [head_dim]
  float* scale;    // [1]
  int32_t* sums;   // [num_groups]
};
inline IntegerQ IntegerQRow(void* prepared, int row, int head_dim, int group_size) {
  uint8_t* base = static_cast<uint8_t*>(prepared) + Size(row) * RowBytes(head_dim, group_size);
  uint8_t* scale = base + 2 * Size(head_dim);
  return {reinterpret_cast<int16_t*>(base), reinterpret_cast<float*>(scale),
          reinterpret_cast<int32_t*>(scale + 4)};
}

// Narrow formats: codes of a byte, the row's scale, the sum of the codes.
struct NarrowQ {
  int8_t* codes;  // [head_dim]
  float* scale;   // [1]
  int32_t* sum;   // [1]
};
inline NarrowQ NarrowQRow(void* prepared, int row, int head_dim) {
  uint8_t* base = static_cast<uint8_t*>(prepared) + Size(row) * RowBytes(head_dim, head_dim);
  uint8_t* scale = base + Size(head_dim);
  return {reinterpret_cast<int8_t*>(base), reinterpret_cast<float*>(scale),
          reinterpret_cast<int32_t*>(scale + 4)};
}

// Float formats: q' in the order of formats.h, [head_dim].
inline float* FloatQRow(void* prepared, int row, int head_dim, int group_size) {
  return reinterpret_cast<float*>(static_cast<uint8_t*>(prepared) +
                                  Size(row) * RowBytes(head_dim, group_size));
}

}  // namespace turboquant::avx2

#endif  // TURBOQUANT_KERNELS_AVX2_PREPARED_Q_H_
