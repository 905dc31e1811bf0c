// What a cache format does to keys and values, by layer and KV head, and what it had to deal with:
// collected while a model runs.
#ifndef TURBOQUANT_EVAL_KV_ERRORS_H_
#define TURBOQUANT_EVAL_KV_ERRORS_H_

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "attention/paged_attention.h"
#include "codec/kv_cache_spec.h"

namespace turboquant {

class KvErrors : public KvObserver, public KvBlockObserver {
 public:
  struct Head {
    explicit Head(int head_dim)
        : model_max(static_cast<size_t>(head_dim)), stored_max(static_cast<size_t>(head_dim)) {}
    double error_squares = 0;  // of closed blocks
    // Of their values. Of keys without the block's mean per channel: what all keys of a block share
    // does not change which one a query prefers.
    double squares = 0;
    // The largest magnitude per channel: as the model computes it, and as the codec got it.
    std::vector<float> model_max, stored_max;
    double RelativeError() const;  // root of the ratio of squares; 0 where nothing was stored
  };

  explicit KvErrors(std::span<const KvCacheSpec> layers);

  // Thread-safe.
  void Observe(int layer, int head, KvSide side, const float* rows, size_t stride,
               int num_rows) override;
  void ObserveQueries(int, int, const float*, size_t, int) override {}
  void ObserveBlock(int layer, int head, KvSide side, const float* exact, const float* stored,
                    int num_tokens) override;

  int num_layers() const { return static_cast<int>(layers_.size()); }
  int num_kv_heads(int layer) const;
  // Not while the model runs.
  const Head& Of(int layer, int head, KvSide side) const;

 private:
  struct Layer {
    std::vector<Head> k, v;  // [num_kv_heads]
  };
  Head& Mutable(int layer, int head, KvSide side);

  std::mutex mutex_;
  std::vector<Layer> layers_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_KV_ERRORS_H_
