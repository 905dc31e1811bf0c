// What is remembered of K and V while a model runs over calibration text: never the values
// themselves. Memory does not grow with the text.
#ifndef TURBOQUANT_CALIBRATION_STATISTICS_H_
#define TURBOQUANT_CALIBRATION_STATISTICS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "attention/paged_attention.h"
#include "codec/kv_cache_spec.h"

namespace turboquant {

// Counts of magnitudes, 16 bins per power of two from 2^-32 to 2^32; what is smaller lies in the
// first bin, what is larger in the last.
class MagnitudeHistogram {
 public:
  static constexpr int kBinsPerOctave = 16;
  static constexpr int kNumBins = 64 * kBinsPerOctave;

  void Add(float magnitude) { ++counts_[static_cast<size_t>(BinOf(magnitude))]; }
  int64_t total() const;
  std::span<const int64_t> counts() const { return counts_; }
  // Every value in the bin is smaller.
  static double UpperEdge(int bin);
  static int BinOf(float magnitude);

 private:
  std::array<int64_t, kNumBins> counts_{};
};

// One KV head of one side of a layer. Rows with NaN or infinities are dropped and counted.
struct HeadStatistics {
  explicit HeadStatistics(int head_dim)
      : channel_max(static_cast<size_t>(head_dim)),
        channel_sum(static_cast<size_t>(head_dim)),
        channel_sum_squares(static_cast<size_t>(head_dim)),
        channel_block_squares(static_cast<size_t>(head_dim)) {}
  int64_t num_tokens = 0, num_dropped = 0;
  std::vector<float> channel_max;                        // |x| as the model computes it
  std::vector<double> channel_sum, channel_sum_squares;  // the same
  // Squares of what is left without the mean over the tokens that came in one call: with a block's
  // tokens at a time, what a block without its mean holds.
  std::vector<double> channel_block_squares;
  float max = 0, rotated_max = 0;
  MagnitudeHistogram magnitudes, rotated_magnitudes;
};

// Queries of the heads that read one KV head.
struct QueryStatistics {
  explicit QueryStatistics(int head_dim) : channel_sum_squares(static_cast<size_t>(head_dim)) {}
  int64_t num_queries = 0;
  std::vector<double> channel_sum_squares;
};

class KvStatistics : public KvObserver {
 public:
  explicit KvStatistics(const std::vector<KvCacheSpec>& layers);
  // Thread-safe.
  void Observe(int layer, int head, KvSide side, const float* rows, size_t stride,
               int num_rows) override;
  void ObserveQueries(int layer, int head, const float* rows, size_t stride, int num_rows) override;

  int num_layers() const { return static_cast<int>(layers_.size()); }
  int num_kv_heads(int layer) const;
  int head_dim(int layer) const { return layers_[static_cast<size_t>(layer)].head_dim; }
  // Not while Observe may run.
  const HeadStatistics& Head(int layer, int head, KvSide side) const;
  const QueryStatistics& Queries(int layer, int head) const;

 private:
  struct Cell {
    explicit Cell(int head_dim) : statistics(head_dim), queries(head_dim) {}
    std::mutex mutex;
    HeadStatistics statistics;
    QueryStatistics queries;  // of K's cells
  };
  struct Layer {
    int head_dim;
    std::vector<std::unique_ptr<Cell>> k, v;  // [num_kv_heads]
  };
  std::vector<Layer> layers_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_STATISTICS_H_
