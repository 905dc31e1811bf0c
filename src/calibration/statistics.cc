#include "calibration/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "codec/rotation.h"

namespace turboquant {
namespace {

constexpr int kMinExponent = -32;
constexpr int kMantissaBits = 4;  // log2 of kBinsPerOctave
constexpr uint32_t kFirstBin = static_cast<uint32_t>(127 + kMinExponent)
                               << kMantissaBits;  // upper bits of a float

void AddRow(const float* row, int head_dim, HeadStatistics* head) {
  for (int c = 0; c < head_dim; ++c) {
    const auto channel = static_cast<size_t>(c);
    const float magnitude = std::fabs(row[c]);
    const auto value = static_cast<double>(row[c]);
    head->channel_max[channel] = std::max(head->channel_max[channel], magnitude);
    head->channel_sum[channel] += value;
    head->channel_sum_squares[channel] += value * value;
    head->max = std::max(head->max, magnitude);
    head->magnitudes.Add(magnitude);
  }
}

void AddRotatedRow(const float* row, int head_dim, HeadStatistics* head) {
  float rotated[kMaxRotationChannels];
  Rotate({.in = row,
          .in_stride = 0,
          .out = rotated,
          .out_stride = 0,
          .num_rows = 1,
          .head_dim = head_dim,
          .inverse = false});
  for (int c = 0; c < head_dim; ++c) {
    const float magnitude = std::fabs(rotated[c]);
    head->rotated_max = std::max(head->rotated_max, magnitude);
    head->rotated_magnitudes.Add(magnitude);
  }
}

bool IsFinite(const float* row, int head_dim) {
  return std::all_of(row, row + head_dim, [](float x) { return std::isfinite(x); });
}

}  // namespace

int MagnitudeHistogram::BinOf(float magnitude) {
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude) >> (23 - kMantissaBits);
  if (bits < kFirstBin) return 0;
  return static_cast<int>(std::min<uint32_t>(bits - kFirstBin, kNumBins - 1));
}

double MagnitudeHistogram::UpperEdge(int bin) {
  return std::ldexp(1 + (bin % kBinsPerOctave + 1) / static_cast<double>(kBinsPerOctave),
                    kMinExponent + bin / kBinsPerOctave);
}

int64_t MagnitudeHistogram::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
}

KvStatistics::KvStatistics(const std::vector<KvCacheSpec>& layers) {
  for (const KvCacheSpec& spec : layers) {
    Layer& layer = layers_.emplace_back();
    layer.head_dim = spec.head_dim;
    for (int head = 0; head < spec.num_kv_heads; ++head) {
      layer.k.push_back(std::make_unique<Cell>(spec.head_dim));
      layer.v.push_back(std::make_unique<Cell>(spec.head_dim));
    }
  }
}

int KvStatistics::num_kv_heads(int layer) const {
  return static_cast<int>(layers_[static_cast<size_t>(layer)].k.size());
}

const HeadStatistics& KvStatistics::Head(int layer, int head, KvSide side) const {
  const Layer& of_layer = layers_[static_cast<size_t>(layer)];
  return (side == KvSide::kKey ? of_layer.k : of_layer.v)[static_cast<size_t>(head)]->statistics;
}

void KvStatistics::Observe(int layer, int head, KvSide side, const float* rows, size_t stride,
                           int num_rows) {
  Layer& of_layer = layers_[static_cast<size_t>(layer)];
  Cell& cell = *(side == KvSide::kKey ? of_layer.k : of_layer.v)[static_cast<size_t>(head)];
  const std::scoped_lock lock(cell.mutex);
  HeadStatistics& head_statistics = cell.statistics;
  const std::vector<double> sums = head_statistics.channel_sum;
  const std::vector<double> squares = head_statistics.channel_sum_squares;
  const int64_t tokens = head_statistics.num_tokens;
  for (int i = 0; i < num_rows; ++i) {
    const float* row = rows + static_cast<size_t>(i) * stride;
    if (!IsFinite(row, of_layer.head_dim)) {
      ++head_statistics.num_dropped;
      continue;
    }
    ++head_statistics.num_tokens;
    AddRow(row, of_layer.head_dim, &head_statistics);
    AddRotatedRow(row, of_layer.head_dim, &head_statistics);
  }
  const auto added = static_cast<double>(head_statistics.num_tokens - tokens);
  if (added == 0) return;
  for (size_t c = 0; c < sums.size(); ++c) {
    const double sum = head_statistics.channel_sum[c] - sums[c];
    const double square = head_statistics.channel_sum_squares[c] - squares[c];
    head_statistics.channel_block_squares[c] += std::max(0.0, square - sum * sum / added);
  }
}

const QueryStatistics& KvStatistics::Queries(int layer, int head) const {
  return layers_[static_cast<size_t>(layer)].k[static_cast<size_t>(head)]->queries;
}

void KvStatistics::ObserveQueries(int layer, int head, const float* rows, size_t stride,
                                  int num_rows) {
  Layer& of_layer = layers_[static_cast<size_t>(layer)];
  Cell& cell = *of_layer.k[static_cast<size_t>(head)];
  const std::scoped_lock lock(cell.mutex);
  for (int i = 0; i < num_rows; ++i) {
    const float* row = rows + static_cast<size_t>(i) * stride;
    if (!IsFinite(row, of_layer.head_dim)) continue;
    ++cell.queries.num_queries;
    for (size_t c = 0; c < static_cast<size_t>(of_layer.head_dim); ++c) {
      cell.queries.channel_sum_squares[c] +=
          static_cast<double>(row[c]) * static_cast<double>(row[c]);
    }
  }
}

}  // namespace turboquant
