// Partial attention of some rows over some keys, and how two of them become one (FlashAttention's
// merge).
//
// For a row and the keys it has seen: p_t = exp(logit_t - max), sum = sum of p_t, output = sum of
// p_t * v_t. A row that has seen no key has max = -inf, sum = 0, output = 0: merging it, on either
// side, changes no bit of the other.
#ifndef TURBOQUANT_ATTENTION_ATTENTION_STATE_H_
#define TURBOQUANT_ATTENTION_ATTENTION_STATE_H_

#include <cstddef>

namespace turboquant {

struct AttentionState {  // borrowed
  float* output;         // [num_rows][head_dim]
  float* max;            // [num_rows]
  float* sum;            // [num_rows]

  AttentionState FromRow(size_t row, size_t head_dim) const {
    return {.output = output + row * head_dim, .max = max + row, .sum = sum + row};
  }
};

void Reset(const AttentionState& state, size_t num_rows, size_t head_dim);
void Copy(const AttentionState& from, size_t num_rows, size_t head_dim, const AttentionState& to);
// to = to merged with from, in this order.
void Merge(const AttentionState& from, size_t num_rows, size_t head_dim, const AttentionState& to);
// out = output / sum of one row. out: [head_dim]
void Finish(const AttentionState& row, size_t head_dim, float* out);

}  // namespace turboquant

#endif  // TURBOQUANT_ATTENTION_ATTENTION_STATE_H_
