// Our own cache. The sizes are those of codec/kv_cache_spec.h and cache/kv_cache_manager.h, by
// which the memory is allocated.
#include <algorithm>

#include "planner/bytes.h"
#include "planner/profiles.h"

namespace turboquant {
namespace {

// Bytes of one block of a layer by what they hold.
CacheBytes BlockParts(const KvCacheSpec& spec) {
  const KvBlockLayout layout(spec);
  const auto heads = static_cast<uint64_t>(spec.num_kv_heads);
  const auto values = static_cast<uint64_t>(spec.block_size) * static_cast<uint64_t>(spec.head_dim);
  CacheBytes parts;
  parts.payload =
      heads * values * static_cast<uint64_t>(CodeBits(spec.k.dtype) + CodeBits(spec.v.dtype)) / 8;
  parts.scales = heads * layout.header_bytes;
  parts.padding = heads * layout.bytes_per_head - parts.payload - parts.scales;
  return parts;
}

class TurboquantProfile : public CacheProfile {
 public:
  TurboquantProfile(const ModelShape& model, const CachePlan& plan) {
    engine_ = EngineKind::kTurboquant;
    block_size_ = plan.config.layers[0].block_size;
    formats_ = plan.formats;
    notes_ = plan.notes;
    bytes_per_sequence_ = BytesPerSequence(plan.config);
    bool slides = false;
    for (size_t i = 0; i < plan.config.layers.size(); ++i) {
      const KvCacheSpec& spec = plan.config.layers[i];
      const CacheBytes parts = BlockParts(spec);
      AddTo(parts, &block_);
      slides = slides || model.layers[i].kind == LayerKind::kSliding;
      if (const auto recent = RecentSpec(spec); recent && plan.config.num_recent_tokens > 0) {
        recent_bytes_ += recent->BytesPerToken() - spec.BytesPerToken();
        recent_tokens_ = plan.config.num_recent_tokens;
      }
      layers_.push_back({.shape = model.layers[i],
                         .format = spec.ToString(),
                         .payload = PerToken(parts.payload),
                         .scales = PerToken(parts.scales),
                         .padding = PerToken(parts.padding),
                         .bits_per_value = spec.BitsPerValue()});
    }
    if (slides)
      notes_.push_back("sliding layers keep all tokens of a sequence, not only the window");
  }

  CacheBytes Bytes(int64_t context, int64_t num_seqs) const override {
    CacheBytes bytes =
        Times(block_, static_cast<uint64_t>(BlocksNeeded(block_size_, context, num_seqs)));
    bytes.sequences = ProductOf({static_cast<uint64_t>(num_seqs), bytes_per_sequence_});
    return bytes;
  }

  // Recent tokens are read as their copies; what a window would hide of them is not subtracted.
  uint64_t BytesRead(int64_t context) const override {
    const auto recent = static_cast<double>(std::min<int64_t>(context, recent_tokens_));
    return CacheProfile::BytesRead(context) + static_cast<uint64_t>(recent * recent_bytes_);
  }

 private:
  double PerToken(uint64_t block_bytes) const {
    return static_cast<double>(block_bytes) / block_size_;
  }

  CacheBytes block_;  // one block over all layers
  uint64_t bytes_per_sequence_ = 0;
  int recent_tokens_ = 0;
  double recent_bytes_ = 0;  // that reading a recent token takes more than another one
};

}  // namespace

std::string LayerText(size_t layer, LayerKind kind) {
  return fmt::format("layer {} ({})", layer, Name(kind));
}

CacheBytes BytesOfSlots(const LayerLedger& layer, uint64_t tokens, uint64_t slots) {
  constexpr double kLimit = 0x1p62;
  const double all = layer.BytesPerToken() * static_cast<double>(slots);
  CacheBytes bytes;
  if (!(all < kLimit)) {
    bytes.payload = kTooManyBytes;
    return bytes;
  }
  bytes.payload = static_cast<uint64_t>(layer.payload * static_cast<double>(tokens));
  bytes.scales = static_cast<uint64_t>(layer.scales * static_cast<double>(tokens));
  bytes.padding = static_cast<uint64_t>(all) - bytes.payload - bytes.scales;
  return bytes;
}

void AddTo(const CacheBytes& part, CacheBytes* sum) {
  sum->payload = SumOf({sum->payload, part.payload});
  sum->scales = SumOf({sum->scales, part.scales});
  sum->padding = SumOf({sum->padding, part.padding});
  sum->sequences = SumOf({sum->sequences, part.sequences});
  sum->state = SumOf({sum->state, part.state});
}

CacheBytes Times(const CacheBytes& bytes, uint64_t count) {
  return {.payload = ProductOf({bytes.payload, count}),
          .scales = ProductOf({bytes.scales, count}),
          .padding = ProductOf({bytes.padding, count}),
          .sequences = ProductOf({bytes.sequences, count}),
          .state = ProductOf({bytes.state, count})};
}

Result<CacheModel> CacheModelOf(const ModelShape& model) {
  CacheModel cache{.layers = {}, .max_context = model.max_context};
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerShape& layer = model.layers[i];
    const bool holds = layer.kind == LayerKind::kFull || layer.kind == LayerKind::kSliding;
    if (!holds) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: {}: our cache holds K and V of heads only; --engine llama.cpp or vllm may "
                  "know such layers",
                  model.path, LayerText(i, layer.kind));
    }
    if (layer.k_dim != layer.v_dim) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: layer {}: keys of {} and values of {} channels; our cache holds equal ones",
                  model.path, i, layer.k_dim, layer.v_dim);
    }
    cache.layers.push_back({.num_kv_heads = layer.num_kv_heads, .head_dim = layer.k_dim});
  }
  return cache;
}

ProfileResult MakeTurboquantProfile(const ModelShape& model, const ProfileOptions& options) {
  TQ_ASSIGN_OR_RETURN(const CacheModel cache, CacheModelOf(model));
  // Only what one token and one sequence take matters here.
  CachePlanOptions smallest = options.cache;
  smallest.max_model_len = 1;
  smallest.max_num_seqs = 1;
  TQ_ASSIGN_OR_RETURN(const CachePlan plan, PlanWithoutLimit(cache, smallest));
  return std::make_unique<TurboquantProfile>(model, plan);
}

}  // namespace turboquant
