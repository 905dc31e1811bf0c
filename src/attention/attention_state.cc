#include "attention/attention_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace turboquant {

void Reset(const AttentionState& state, size_t num_rows, size_t head_dim) {
  std::fill_n(state.output, num_rows * head_dim, 0.0f);
  std::fill_n(state.max, num_rows, -std::numeric_limits<float>::infinity());
  std::fill_n(state.sum, num_rows, 0.0f);
}

void Copy(const AttentionState& from, size_t num_rows, size_t head_dim, const AttentionState& to) {
  std::memcpy(to.output, from.output, num_rows * head_dim * sizeof(float));
  std::memcpy(to.max, from.max, num_rows * sizeof(float));
  std::memcpy(to.sum, from.sum, num_rows * sizeof(float));
}

void Merge(const AttentionState& from, size_t num_rows, size_t head_dim, const AttentionState& to) {
  constexpr float kEmpty = -std::numeric_limits<float>::infinity();
  for (size_t row = 0; row < num_rows; ++row) {
    const AttentionState source = from.FromRow(row, head_dim);
    const AttentionState target = to.FromRow(row, head_dim);
    if (*source.max == kEmpty) continue;
    if (*target.max == kEmpty) {
      Copy(source, 1, head_dim, target);
      continue;
    }
    const float max = std::max(*target.max, *source.max);
    const float target_factor = std::exp(*target.max - max);
    const float source_factor = std::exp(*source.max - max);
    for (size_t c = 0; c < head_dim; ++c) {
      target.output[c] = target.output[c] * target_factor + source.output[c] * source_factor;
    }
    *target.sum = *target.sum * target_factor + *source.sum * source_factor;
    *target.max = max;
  }
}

void Finish(const AttentionState& row, size_t head_dim, float* out) {
  const float inv_sum = 1.0f / *row.sum;
  for (size_t c = 0; c < head_dim; ++c) out[c] = row.output[c] * inv_sum;
}

}  // namespace turboquant
