// Form of prepared queries of the integer formats: what prepare_q.cc writes and qk.cc reads.
//
// A row: codes in bytes, [terms][head_dim]; the row's scale; the sum of the codes of each group.
// Narrow formats have one term, the code itself. The others have codes of 16 bits in two terms,
//   code = 256 * first + second      first in -127..127, second in -128..127
// which |code| <= 32512 = 127 * 256 allows.
#ifndef TURBOQUANT_KERNELS_NEONINT_PREPARED_Q_H_
#define TURBOQUANT_KERNELS_NEONINT_PREPARED_Q_H_

#include "kernels/neonint/vec.h"

namespace turboquant::TQ_FOLDER {

// PreparedQBytes of kernel_table.h, which as an inline function of a shared header must not be
// called here.
inline size_t RowBytes(int head_dim, int group_size) {
  return (4 * Size(head_dim) + 4 * Size(head_dim / group_size) + 64 + 63) / 64 * 64;
}

template <int kTerms>
struct PreparedRow {
  int8_t* terms;  // [kTerms][head_dim]
  float* scale;   // [1]
  int32_t* sums;  // [num_groups]

  PreparedRow(void* prepared, int row, int head_dim, int group_size) {
    uint8_t* base = static_cast<uint8_t*>(prepared) + Size(row) * RowBytes(head_dim, group_size);
    uint8_t* tail = base + kTerms * Size(head_dim);
    terms = reinterpret_cast<int8_t*>(base);
    scale = reinterpret_cast<float*>(tail);
    sums = reinterpret_cast<int32_t*>(tail + sizeof(float));
  }
};

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONINT_PREPARED_Q_H_
