// Paged attention over the stored codes: store, attend, merge. Written once over the kernel table.
//
// The rule (docs/design/attention.md): a query at position t, in block b = t / block_size, reads
//   - every closed block before b as stored codes (in block 0 without the sink tokens, which are
//   read exactly),
//   - the sinks and the tokens b * block_size .. t of its own block exactly (f16, or f32 for f32
//   caches),
// minus what a sliding window hides. It is the same at prefill and at decode. Keys are walked in
// splits of kSplitTokens at fixed positions; the partial results of the splits, then the exact
// tile, are merged in that order. So chunk size, batch neighbours and thread count change nothing,
// bit for bit.
//
// A step: the engine reserves slots, builds an AttentionStep once, then for every layer in order
// runs, each with all threads (ith of nth) and a barrier between: StoreKv, Attend, Merge, or, where
// nothing asks what a layer attends to, StoreKv and KeepRecent; then
// commits the slots.
#ifndef TURBOQUANT_ATTENTION_PAGED_ATTENTION_H_
#define TURBOQUANT_ATTENTION_PAGED_ATTENTION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/saturation.h"
#include "cache/kv_cache_manager.h"
#include "kernels/kernel_table.h"

namespace turboquant {

inline constexpr int kSplitTokens = 512;  // a multiple of every block size

// num_tokens new tokens of one sequence; its tokens stand in rows [first_row, first_row +
// num_tokens) of the batch.
struct SequenceChunk {
  SequenceId sequence;
  int start;  // position of the first new token = committed tokens of the sequence
  int num_tokens;
  int first_row;
};

struct LayerAttentionParams {
  int num_heads = 0;  // query heads; a multiple of the layer's num_kv_heads
  float scale = 0;    // softmax scale, usually 1 / sqrt(head_dim)
  int sliding_window =
      0;  // a query sees the last `sliding_window` positions, itself included; 0 = all
  float logit_softcap = 0;  // 0 = none
};

// Sees K and V as the model computes them, before rotation and rounding, when StoreKv stores them,
// and the queries that Attend is called with.
class KvObserver {
 public:
  virtual ~KvObserver() = default;
  // num_rows tokens of one KV head, [head_dim] each, `stride` floats apart. Called by the threads
  // of a step, several at once, for one head too.
  virtual void Observe(int layer, int head, KvSide side, const float* rows, size_t stride,
                       int num_rows) = 0;
  // num_rows queries of one query head that reads KV head `head`; otherwise the same.
  virtual void ObserveQueries(int layer, int head, const float* rows, size_t stride,
                              int num_rows) = 0;
};

// Sees the blocks that StoreKv closes, as they were given to the codec (rotated, where the side is)
// and as attention will read them. Slow: for measurements. Called as KvObserver is.
class KvBlockObserver {
 public:
  virtual ~KvBlockObserver() = default;
  // Of one KV head: [num_tokens][head_dim] each.
  virtual void ObserveBlock(int layer, int head, KvSide side, const float* exact,
                            const float* stored, int num_tokens) = 0;
};

// Stands in for a codec where an evaluation compares one that is not ours (eval/recipes.h): changes
// values that a cache of f32 is about to store. Called by the threads of a step, several at once.
class KvRecipe {
 public:
  virtual ~KvRecipe() = default;
  // A new token of one KV head, [head_dim].
  virtual void OnToken(KvSide side, float* row, int head_dim) const = 0;
  // Block `block` of a sequence when it closes: x [num_tokens][head_dim] of one KV head.
  virtual void OnClose(KvSide side, int block, float* x, int num_tokens, int head_dim) const = 0;
};

// Attends in place of the kernels where an evaluation measures a rule of what is kept that is not
// ours (eval/eviction.h). Keeps keys and values itself: the cache then only counts tokens. Called
// by the threads of a step with the barriers of PagedAttention's own; pointers as there.
class AttentionStandIn {
 public:
  virtual ~AttentionStandIn() = default;
  virtual void StoreKv(int layer, std::span<const SequenceChunk> chunks, const float* k,
                       size_t k_stride, const float* v, size_t v_stride, int ith, int nth) = 0;
  virtual void Attend(int layer, std::span<const SequenceChunk> chunks, const float* q,
                      size_t q_stride, float* out, size_t out_stride, int ith, int nth) = 0;
};

struct AttentionLimits {
  int max_batch_tokens = 512;  // rows of a step
  int max_num_seqs = 1;
  int max_context = 0;  // tokens of the longest sequence
  int max_threads = 1;
};

class PagedAttention {
 public:
  // `manager` and `kernels` must outlive this. params: one per layer.
  PagedAttention(KvCacheManager* manager, const KernelTable* kernels,
                 std::vector<LayerAttentionParams> params, const AttentionLimits& limits);
  ~PagedAttention();

  // Plans one step. Chunks must be within the limits (CHECK) and their slots reserved in the
  // manager.
  void BeginStep(std::span<const SequenceChunk> chunks);

  // k, v: [num rows of the step][num_kv_heads][head_dim] f32, rows `k_stride` / `v_stride` floats
  // apart.
  void StoreKv(int layer, const float* k, size_t k_stride, const float* v, size_t v_stride, int ith,
               int nth);
  // q: [rows][num_heads][head_dim]; out: the same shape. Rows of units that are split over threads
  // are written by Merge.
  void Attend(int layer, const float* q, size_t q_stride, float* out, size_t out_stride, int ith,
              int nth);
  // Also does what KeepRecent does.
  void Merge(int layer, float* out, size_t out_stride, int ith, int nth);
  // Takes over the copies of recent blocks that the step has closed into their sequences.
  void KeepRecent(int layer, int ith, int nth);

  void set_observer(KvObserver* observer);             // null = none; borrowed
  void set_block_observer(KvBlockObserver* observer);  // null = none; borrowed
  void set_recipe(const KvRecipe* recipe);             // null = none; borrowed
  void set_stand_in(AttentionStandIn* stand_in);       // null = none; borrowed
  // Multiplies the softmax scale of every layer. Not during a step.
  void ScaleScores(float factor);
  const SaturationCounts& saturation() const;
  // Wall time that thread 0 has spent in Attend and Merge since construction.
  double attend_seconds() const;
  size_t scratch_bytes_per_thread() const;  // O(tile)
  size_t shared_bytes() const;              // exact staging of a step + split partials

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_ATTENTION_PAGED_ATTENTION_H_
