// vLLM: pages of block_size tokens of one layer; layers of several kinds are put into groups that
// draw on one pool (vllm/v1/core/kv_cache_utils.py, vllm/v1/kv_cache_interface.py). Figures are
// those of one rank.
#include <algorithm>
#include <array>
#include <map>

#include "planner/bytes.h"
#include "planner/profiles.h"

namespace turboquant {
namespace {

constexpr int kDefaultBlockSize = 16;

// Per token and KV head and side, or per token of a latent layer.
struct VllmFormat {
  std::string_view name;
  int code_bits;
  int scale_bytes;  // per token, head and side
  bool latent;      // MLA layers can have it
};
constexpr std::array kFormats = {
    VllmFormat{"auto", 16, 0, true},
    VllmFormat{"bfloat16", 16, 0, true},
    VllmFormat{"float16", 16, 0, true},
    VllmFormat{"fp8", 8, 0, true},
    VllmFormat{"fp8_e4m3", 8, 0, true},
    VllmFormat{"fp8_e5m2", 8, 0, false},
    VllmFormat{"int8_per_token_head", 8, 4, false},
    VllmFormat{"fp8_per_token_head", 8, 4, false},
    VllmFormat{"int4_per_token_head", 4, 4, false},
};
// 512 codes, 4 scales of 4 bytes, 64 rotary channels of 2 bytes.
constexpr std::string_view kPackedLatent = "fp8_ds_mla";
constexpr int kPackedLatentCodes = 512 + 128, kPackedLatentScales = 16, kPackedLatentDim = 576;

Result<VllmFormat> ParseVllmFormat(std::string_view text) {
  std::string names;
  for (const VllmFormat& format : kFormats) {
    if (format.name == text) return format;
    names += fmt::format("{}, ", format.name);
  }
  return Fail(ErrorCode::kInvalidArgument, "vLLM has no --kv-cache-dtype '{}' here; it has {}{}",
              text, names, kPackedLatent);
}

// Heads of one rank: divided, or each on several ranks where there are more ranks than heads.
Result<int> HeadsOfRank(int heads, int ranks) {
  if (heads % ranks == 0) return heads / ranks;
  if (ranks % heads == 0) return 1;
  return Fail(ErrorCode::kInvalidArgument,
              "--tensor-parallel-size {}: {} KV heads neither divide into as many ranks nor divide "
              "them",
              ranks, heads);
}

Result<LayerLedger> MakeLayer(const ModelShape& model, size_t index, std::string_view text,
                              int ranks) {
  LayerLedger layer{.shape = model.layers[index]};
  LayerShape& shape = layer.shape;
  if (shape.kind == LayerKind::kShared) return layer;
  if (shape.kind == LayerKind::kRecurrent) {
    return Fail(ErrorCode::kUnsupported,
                "{}: {}: vLLM enlarges the blocks of a model with such layers until they hold a "
                "state; that is not computed here. --engine llama.cpp is",
                model.path, LayerText(index, shape.kind));
  }
  layer.format = text;
  if (text == kPackedLatent) {
    if (shape.kind != LayerKind::kLatent || shape.k_dim != kPackedLatentDim) {
      return Fail(ErrorCode::kUnsupported, "{}: {}: {} is for latent layers of {} channels",
                  model.path, LayerText(index, shape.kind), text, kPackedLatentDim);
    }
    layer.payload = kPackedLatentCodes;
    layer.scales = kPackedLatentScales;
  } else {
    TQ_ASSIGN_OR_RETURN(const VllmFormat format, ParseVllmFormat(text));
    if (shape.kind == LayerKind::kLatent && !format.latent) {
      return Fail(ErrorCode::kUnsupported, "{}: {}: vLLM has no {} for latent layers", model.path,
                  LayerText(index, shape.kind), text);
    }
    if (shape.kind != LayerKind::kLatent) {
      TQ_ASSIGN_OR_RETURN(shape.num_kv_heads, HeadsOfRank(shape.num_kv_heads, ranks));
    }
    layer.payload = static_cast<double>(shape.ValuesPerToken()) * format.code_bits / 8;
    layer.scales = 2.0 * shape.num_kv_heads * format.scale_bytes;
  }
  layer.bits_per_value = 8 * layer.BytesPerToken() / static_cast<double>(shape.ValuesPerToken());
  return layer;
}

class VllmProfile : public CacheProfile {
 public:
  VllmProfile(std::string formats, std::vector<LayerLedger> layers, int block_size,
              int max_batch_tokens)
      : max_batch_tokens_(max_batch_tokens) {
    engine_ = EngineKind::kVllm;
    formats_ = std::move(formats);
    layers_ = std::move(layers);
    block_size_ = block_size;
  }

  // Puts the layers into groups; refuses what the groups cannot hold.
  Status MakeGroups(const ModelShape& model) {
    std::map<int, std::vector<const LayerLedger*>> kinds;  // by window, 0 = all tokens
    for (const LayerLedger& layer : layers_) {
      if (layer.shape.StoresTokens()) kinds[layer.shape.window].push_back(&layer);
    }
    if (kinds.empty())
      return Fail(ErrorCode::kUnsupported, "{}: no layer stores tokens", model.path);
    if (kinds.size() == 1) {
      // One group of all: pages of different sizes are no matter.
      groups_.push_back({.window = kinds.begin()->first, .layers = kinds.begin()->second});
      return {};
    }
    size_t least = layers_.size(), most = 0;
    for (const auto& [window, members] : kinds) {
      least = std::min(least, members.size());
      most = std::max(most, members.size());
      for (const LayerLedger* layer : members) {
        if (layer->BytesPerToken() == kinds.begin()->second[0]->BytesPerToken()) continue;
        return Fail(ErrorCode::kUnsupported,
                    "{}: layers with and without a window store {} and {} bytes per token; how "
                    "vLLM makes their pages equal is not computed here",
                    model.path, layer->BytesPerToken(), kinds.begin()->second[0]->BytesPerToken());
      }
    }
    // As many layers per group as the rarest kind has, or as the most frequent one where the two
    // are near.
    group_layers_ = static_cast<double>(most) < 1.25 * static_cast<double>(least) ? most : least;
    for (const auto& [window, members] : kinds) {
      for (size_t first = 0; first < members.size(); first += group_layers_) {
        const size_t end = std::min(first + group_layers_, members.size());
        groups_.push_back({.window = window,
                           .layers = {members.begin() + static_cast<std::ptrdiff_t>(first),
                                      members.begin() + static_cast<std::ptrdiff_t>(end)}});
      }
    }
    notes_.push_back(fmt::format("{} groups of {} layers draw on one pool of blocks",
                                 groups_.size(), group_layers_));
    return {};
  }

  CacheBytes Bytes(int64_t context, int64_t num_seqs) const override {
    CacheBytes sum;
    for (const Group& group : groups_) {
      const auto length = static_cast<uint64_t>(context);
      const auto size = static_cast<uint64_t>(block_size_);
      const auto window = static_cast<uint64_t>(group.window);
      const uint64_t tokens = group.window == 0 ? length : std::min(length, window);
      // A window holds one step's tokens on top, and need not begin with a block.
      const uint64_t blocks =
          group.window == 0
              ? CeilDiv(length, size)
              : CeilDiv(std::min(window - 1 + static_cast<uint64_t>(max_batch_tokens_), length),
                        size) +
                    1;
      for (const LayerLedger* layer : group.layers)
        AddTo(BytesOfSlots(*layer, tokens, blocks * size), &sum);
      const size_t missing = std::max(group_layers_, group.layers.size()) - group.layers.size();
      const CacheBytes filler = BytesOfSlots(*group.layers[0], 0, blocks * size);
      AddTo(Times(filler, missing), &sum);
    }
    return Times(sum, static_cast<uint64_t>(num_seqs));
  }

 private:
  struct Group {
    int window = 0;
    std::vector<const LayerLedger*> layers;
  };
  std::vector<Group> groups_;
  size_t group_layers_ = 0;
  int max_batch_tokens_;
};

}  // namespace

ProfileResult MakeVllmProfile(const ModelShape& model, const ProfileOptions& options) {
  if (!options.cache.kv_scale_granularity.empty() || !options.cache.kv_cache_dtype_layers.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "--kv-scale-granularity and --kv-cache-dtype-layers: vLLM's formats name their "
                "scales themselves, and one holds for all layers");
  }
  const int block_size =
      options.cache.block_size == 0 ? kDefaultBlockSize : options.cache.block_size;
  if (block_size < 1 || block_size > (1 << 16)) {
    return Fail(ErrorCode::kInvalidArgument, "--block-size {}: must be 1 to 65536", block_size);
  }
  std::vector<LayerLedger> layers;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    TQ_ASSIGN_OR_RETURN(LayerLedger layer, MakeLayer(model, i, options.cache.kv_cache_dtype,
                                                     options.tensor_parallel_size));
    layers.push_back(std::move(layer));
  }
  auto profile = std::make_unique<VllmProfile>(options.cache.kv_cache_dtype, std::move(layers),
                                               block_size, options.max_batch_tokens);
  TQ_RETURN_IF_ERROR(profile->MakeGroups(model));
  return profile;
}

}  // namespace turboquant
