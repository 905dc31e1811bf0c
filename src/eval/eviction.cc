#include "eval/eviction.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "eval/recipes.h"

namespace turboquant {
namespace {

constexpr std::string_view kPrefix = "recipe:keep", kNewest = "_newest";

// scores[t] = q . k of token t. k: [head_dim][block_size]
void ScoreBlock(const float* q, const float* k, int head_dim, int block_size, float* scores) {
  std::fill_n(scores, block_size, 0.0f);
  for (int c = 0; c < head_dim; ++c, k += block_size) {
    for (int t = 0; t < block_size; ++t) scores[t] += q[c] * k[t];
  }
}

// scores[i] = exp(scale * (scores[i] - their maximum)) over the sum of all.
void Softmax(std::span<float> scores, float scale) {
  const float max = std::ranges::max(scores);
  double sum = 0;
  for (float& score : scores) {
    score = std::exp(scale * (score - max));
    sum += static_cast<double>(score);
  }
  const auto inverse = static_cast<float>(1 / sum);
  for (float& score : scores) score *= inverse;
}

}  // namespace

bool IsEviction(std::string_view text) { return text.starts_with(kPrefix); }

Result<EvictionRule> ParseEvictionRule(std::string_view text, int block_size) {
  CHECK(IsEviction(text));
  EvictionRule rule;
  int tokens = 0;
  const char* const end = text.data() + text.size();
  const auto [after, error] = std::from_chars(text.data() + kPrefix.size(), end, tokens);
  std::string_view rest(after, end);
  if (rest.starts_with(kNewest)) {
    rule.by_score = false;
    rest.remove_prefix(kNewest.size());
  }
  if (error != std::errc{} || (!rest.empty() && rest[0] != '_') || rest == "_" ||
      tokens < 2 * block_size || tokens % block_size != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "'{}': want recipe:keepN, keepN_newest, keepN_RECIPE or keepN_newest_RECIPE, N "
                "tokens that fill two blocks of {} or more",
                text, block_size);
  }
  rule.num_blocks = tokens / block_size;
  if (!rest.empty()) rule.recipe = std::string(kRecipePrefix) + std::string(rest.substr(1));
  return rule;
}

EvictingAttention::EvictingAttention(std::span<const KvCacheSpec> layers,
                                     std::span<const LayerAttentionParams> params,
                                     EvictionRule rule, const KvRecipe* rounding)
    : rule_(std::move(rule)), rounding_(rounding) {
  CHECK_EQ(rule_.recipe.empty(), rounding_ == nullptr);
  CHECK_EQ(layers.size(), params.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    CHECK_EQ(params[i].sliding_window, 0);
    CHECK_EQ(params[i].logit_softcap, 0.0f);
    layers_.push_back({.group = params[i].num_heads / layers[i].num_kv_heads,
                       .head_dim = layers[i].head_dim,
                       .block_size = layers[i].block_size,
                       .scale = params[i].scale,
                       .heads = std::vector<Head>(static_cast<size_t>(layers[i].num_kv_heads))});
  }
}

void EvictingAttention::StoreKv(int layer, std::span<const SequenceChunk> chunks, const float* k,
                                size_t k_stride, const float* v, size_t v_stride, int ith,
                                int nth) {
  CHECK_EQ(chunks.size(), 1u);
  const SequenceChunk& chunk = chunks.front();
  Layer& to = layers_[static_cast<size_t>(layer)];
  const auto d = static_cast<size_t>(to.head_dim), block_size = static_cast<size_t>(to.block_size);
  for (auto h = static_cast<size_t>(ith); h < to.heads.size(); h += static_cast<size_t>(nth)) {
    Head& head = to.heads[h];
    if (chunk.start == 0) head = {};
    CHECK_EQ(head.num_stored, chunk.start);
    head.num_stored += chunk.num_tokens;
    const size_t num_blocks = (static_cast<size_t>(head.num_stored) + block_size - 1) / block_size;
    head.k.resize(num_blocks * block_size * d);
    head.v.resize(num_blocks * block_size * d);
    head.mass.resize(num_blocks);
    for (int i = 0; i < chunk.num_tokens; ++i) {
      const auto row = static_cast<size_t>(chunk.first_row + i);
      const auto position = static_cast<size_t>(chunk.start + i);
      float* keys = head.k.data() + position / block_size * block_size * d + position % block_size;
      for (size_t c = 0; c < d; ++c) keys[c * block_size] = k[row * k_stride + h * d + c];
      std::copy_n(v + row * v_stride + h * d, d, head.v.data() + position * d);
    }
  }
}

void EvictingAttention::Attend(int layer, std::span<const SequenceChunk> chunks, const float* q,
                               size_t q_stride, float* out, size_t out_stride, int ith, int nth) {
  const SequenceChunk& chunk = chunks.front();
  Layer& from = layers_[static_cast<size_t>(layer)];
  const size_t width = static_cast<size_t>(from.group) * static_cast<size_t>(from.head_dim);
  std::vector<float> scores;
  for (auto h = static_cast<size_t>(ith); h < from.heads.size(); h += static_cast<size_t>(nth)) {
    Head& head = from.heads[h];
    CHECK_EQ(head.num_attended, chunk.start);  // else attention was received that nobody counted
    head.num_attended += chunk.num_tokens;
    for (int i = 0; i < chunk.num_tokens; ++i) {
      const int position = chunk.start + i;
      if (position > 0 && position % from.block_size == 0) {
        CloseBlock(from, position / from.block_size - 1, &head);
      }
      const auto row = static_cast<size_t>(chunk.first_row + i);
      AttendQuery(from, position, q + row * q_stride + h * width, &head, &scores,
                  out + row * out_stride + h * width);
    }
  }
}

void EvictingAttention::Round(const Layer& layer, int block, Head* head) const {
  const auto d = static_cast<size_t>(layer.head_dim),
             block_size = static_cast<size_t>(layer.block_size);
  const size_t first = static_cast<size_t>(block) * block_size * d;
  float *k = head->k.data() + first, *v = head->v.data() + first;
  std::vector<float> rows(block_size * d);  // keys as the recipe takes them
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = k[i % d * block_size + i / d];
  rounding_->OnClose(KvSide::kKey, block, rows.data(), layer.block_size, layer.head_dim);
  for (size_t i = 0; i < rows.size(); ++i) k[i % d * block_size + i / d] = rows[i];
  rounding_->OnClose(KvSide::kValue, block, v, layer.block_size, layer.head_dim);
}

void EvictingAttention::CloseBlock(const Layer& layer, int block, Head* head) const {
  if (rounding_ != nullptr) Round(layer, block, head);
  std::vector<int>& kept = head->kept;
  kept.push_back(block);
  if (kept.size() <= static_cast<size_t>(rule_.num_blocks)) return;
  auto evicted = kept.begin() + 1;
  if (rule_.by_score) {
    evicted = std::ranges::min_element(evicted, kept.end() - rule_.num_newest(), {}, [&](int each) {
      return head->mass[static_cast<size_t>(each)];
    });
  }
  kept.erase(evicted);
}

void EvictingAttention::AttendQuery(const Layer& layer, int position, const float* q, Head* head,
                                    std::vector<float>* scores, float* out) {
  const int own = position / layer.block_size;
  const auto d = static_cast<size_t>(layer.head_dim),
             block_size = static_cast<size_t>(layer.block_size);
  const size_t num_kept = head->kept.size();
  const size_t count = num_kept * block_size + static_cast<size_t>(position % layer.block_size) + 1;
  scores->resize((num_kept + 1) * block_size);
  std::fill_n(out, static_cast<size_t>(layer.group) * d, 0.0f);
  for (int g = 0; g < layer.group; ++g, q += d, out += d) {
    const auto block_at = [&](size_t i) {
      return static_cast<size_t>(i < num_kept ? head->kept[i] : own);
    };
    for (size_t i = 0; i <= num_kept; ++i) {
      ScoreBlock(q, head->k.data() + block_at(i) * block_size * d, layer.head_dim, layer.block_size,
                 scores->data() + i * block_size);
    }
    Softmax(std::span(*scores).first(count), layer.scale);
    for (size_t i = 0; i < count; ++i) {
      const size_t block = block_at(i / block_size);
      const float p = (*scores)[i];
      const float* v = head->v.data() + (block * block_size + i % block_size) * d;
      head->mass[block] += static_cast<double>(p);
      for (size_t c = 0; c < d; ++c) out[c] += p * v[c];
    }
  }
}

std::span<const int> EvictingAttention::Kept(int layer, int head) const {
  return layers_[static_cast<size_t>(layer)].heads[static_cast<size_t>(head)].kept;
}

}  // namespace turboquant
