// Eviction of closed blocks: attention that keeps so many of them and forgets the others for good.
// In plain code, for comparison in evaluations only; nothing serves from it.
//
//   recipe:keep512         H2O (arXiv 2306.14048) by block: of each layer and KV head closed blocks
//                          of 512 tokens in all, half of them the newest, the others the first one
//                          and those whose tokens have received the most attention (the sum of
//                          probabilities over all queries so far and the query heads of the group)
//   recipe:keep512_newest  the first block and the newest (StreamingLLM, arXiv 2309.17453)
//   recipe:keep512_int4    as the first, in the codes of a recipe (eval/recipes.h) that rounds a
//                          block when it closes; the two above keep exact values
//
// A query reads what is kept and its own block; which block goes is decided when one closes, so
// that how a text is cut into steps changes nothing.
#ifndef TURBOQUANT_EVAL_EVICTION_H_
#define TURBOQUANT_EVAL_EVICTION_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/paged_attention.h"
#include "base/error.h"

namespace turboquant {

struct EvictionRule {
  int num_blocks = 0;       // closed ones that are kept, 2 at least
  bool by_score = true;     // false: the oldest but the first goes
  std::string recipe = {};  // with its prefix; empty: exact values
  // Of the kept ones, never evicted however little attention they got.
  int num_newest() const { return num_blocks / 2; }
};

bool IsEviction(std::string_view text);
// text: a name as above; whether there is such a recipe is not looked at. kInvalidArgument unless
// the tokens fill two blocks or more.
Result<EvictionRule> ParseEvictionRule(std::string_view text, int block_size);

// One sequence at a time; a step that begins at position 0 begins a new one. Layers without sliding
// window and soft cap (CHECK).
class EvictingAttention : public AttentionStandIn {
 public:
  // rounding: what rule.recipe names, borrowed; null without one.
  EvictingAttention(std::span<const KvCacheSpec> layers,
                    std::span<const LayerAttentionParams> params, EvictionRule rule,
                    const KvRecipe* rounding);

  void StoreKv(int layer, std::span<const SequenceChunk> chunks, const float* k, size_t k_stride,
               const float* v, size_t v_stride, int ith, int nth) override;
  void Attend(int layer, std::span<const SequenceChunk> chunks, const float* q, size_t q_stride,
              float* out, size_t out_stride, int ith, int nth) override;

  const EvictionRule& rule() const { return rule_; }
  // Closed blocks that the latest query of a KV head read, ascending. Not during a step.
  std::span<const int> Kept(int layer, int head) const;

 private:
  struct Head {
    std::vector<float> k;                  // [blocks][head_dim][block_size]
    std::vector<float> v;                  // [blocks][block_size][head_dim]
    std::vector<double> mass;              // [blocks]: attention received
    std::vector<int> kept;                 // closed blocks, ascending
    int num_stored = 0, num_attended = 0;  // tokens
  };
  struct Layer {
    int group, head_dim, block_size;
    float scale;
    std::vector<Head> heads;  // [num_kv_heads]
  };

  void CloseBlock(const Layer& layer, int block, Head* head) const;
  void Round(const Layer& layer, int block, Head* head) const;
  // q, out: [group][head_dim] of the query at `position`. scores: scratch.
  static void AttendQuery(const Layer& layer, int position, const float* q, Head* head,
                          std::vector<float>* scores, float* out);

  EvictionRule rule_;
  const KvRecipe* rounding_;
  std::vector<Layer> layers_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_EVICTION_H_
