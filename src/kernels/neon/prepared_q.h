// Form of prepared queries of the float formats: what prepare_q.cc writes and qk.cc reads.
#ifndef TURBOQUANT_KERNELS_NEON_PREPARED_Q_H_
#define TURBOQUANT_KERNELS_NEON_PREPARED_Q_H_

#include "kernels/neon/vec.h"

namespace turboquant::neon {

// PreparedQBytes of kernel_table.h, which as an inline function of a shared header must not be
// called here.
inline size_t RowBytes(int head_dim, int group_size) {
  return (4 * Size(head_dim) + 4 * Size(head_dim / group_size) + 64 + 63) / 64 * 64;
}

}  // namespace turboquant::neon

#endif  // TURBOQUANT_KERNELS_NEON_PREPARED_Q_H_
