#include "eval/kv_errors.h"

#include <algorithm>
#include <cmath>

namespace turboquant {
namespace {

void Raise(const float* row, std::vector<float>* max) {
  for (size_t c = 0; c < max->size(); ++c) (*max)[c] = std::max((*max)[c], std::fabs(row[c]));
}

// Sum of the squares of x, [num_rows][width], less those of the means of its columns.
double SquaresAboutMean(const float* x, size_t num_rows, size_t width) {
  double total = 0;
  for (size_t c = 0; c < width; ++c) {
    double sum = 0, squares = 0;
    for (size_t r = 0; r < num_rows; ++r) {
      const auto value = static_cast<double>(x[r * width + c]);
      sum += value;
      squares += value * value;
    }
    total += squares - sum * sum / static_cast<double>(num_rows);
  }
  return total;
}

}  // namespace

double KvErrors::Head::RelativeError() const {
  return squares > 0 ? std::sqrt(error_squares / squares) : 0;
}

KvErrors::KvErrors(std::span<const KvCacheSpec> layers) {
  for (const KvCacheSpec& spec : layers) {
    const std::vector<Head> heads(static_cast<size_t>(spec.num_kv_heads), Head(spec.head_dim));
    layers_.push_back({.k = heads, .v = heads});
  }
}

int KvErrors::num_kv_heads(int layer) const {
  return static_cast<int>(layers_[static_cast<size_t>(layer)].k.size());
}

const KvErrors::Head& KvErrors::Of(int layer, int head, KvSide side) const {
  const Layer& of = layers_[static_cast<size_t>(layer)];
  return (side == KvSide::kKey ? of.k : of.v)[static_cast<size_t>(head)];
}

KvErrors::Head& KvErrors::Mutable(int layer, int head, KvSide side) {
  Layer& of = layers_[static_cast<size_t>(layer)];
  return (side == KvSide::kKey ? of.k : of.v)[static_cast<size_t>(head)];
}

void KvErrors::Observe(int layer, int head, KvSide side, const float* rows, size_t stride,
                       int num_rows) {
  const std::scoped_lock lock(mutex_);
  Head& seen = Mutable(layer, head, side);
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r)
    Raise(rows + r * stride, &seen.model_max);
}

void KvErrors::ObserveBlock(int layer, int head, KvSide side, const float* exact,
                            const float* stored, int num_tokens) {
  const std::scoped_lock lock(mutex_);
  Head& seen = Mutable(layer, head, side);
  const size_t width = seen.stored_max.size(), rows = static_cast<size_t>(num_tokens);
  double squares = 0;
  for (size_t i = 0; i < rows * width; ++i) {
    const auto x = static_cast<double>(exact[i]);
    const double error = x - static_cast<double>(stored[i]);
    seen.error_squares += error * error;
    squares += x * x;
  }
  seen.squares += side == KvSide::kKey ? SquaresAboutMean(exact, rows, width) : squares;
  for (size_t r = 0; r < rows; ++r) Raise(exact + r * width, &seen.stored_max);
}

}  // namespace turboquant
