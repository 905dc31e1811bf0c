#include "planner/hf_family.h"

#include <array>

#include "planner/bytes.h"

namespace turboquant {
namespace {

constexpr std::array kFamilies = {
    HfFamily{.model_type = "deepseek_v2",
             .layers = LayerRule::kLatent,
             .parameters = ParameterRule::kDeepSeek},
    HfFamily{.model_type = "deepseek_v3",
             .layers = LayerRule::kLatent,
             .parameters = ParameterRule::kDeepSeek},
    HfFamily{.model_type = "gemma2",
             .sliding = SlidingRule::kEveryOther,
             .tied = true,
             .norms_per_layer = 4,
             .default_head_dim = 256},
    HfFamily{.model_type = "gemma3_text",
             .sliding = SlidingRule::kPattern,
             .tied = true,
             .norms_per_layer = 4,
             .head_norms = true,
             .default_head_dim = 256,
             .default_vocab = 262208,
             .default_context = 131072,
             .default_pattern = 6},
    HfFamily{.model_type = "gemma3n_text",
             .layers = LayerRule::kSharedUpper,
             .sliding = SlidingRule::kPattern,
             .parameters = ParameterRule::kUnknown,
             .tied = true,
             .default_head_dim = 256,
             .default_pattern = 5},
    HfFamily{.model_type = "gpt_oss",
             .sliding = SlidingRule::kEveryOther,
             .parameters = ParameterRule::kUnknown},
    HfFamily{.model_type = "llama"},
    HfFamily{.model_type = "mistral", .sliding = SlidingRule::kAll},
    HfFamily{.model_type = "mixtral",
             .sliding = SlidingRule::kAll,
             .parameters = ParameterRule::kMixtral},
    HfFamily{.model_type = "phi3", .sliding = SlidingRule::kAll},
    HfFamily{.model_type = "qwen2", .sliding = SlidingRule::kUpperLayers, .qkv_bias = true},
    HfFamily{.model_type = "qwen3",
             .sliding = SlidingRule::kUpperLayers,
             .head_norms = true,
             .default_head_dim = 128},
    HfFamily{.model_type = "qwen3_moe",
             .sliding = SlidingRule::kUpperLayers,
             .parameters = ParameterRule::kQwenExperts,
             .head_norms = true},
    HfFamily{.model_type = "qwen3_next",
             .layers = LayerRule::kLinear,
             .parameters = ParameterRule::kUnknown,
             .default_head_dim = 256},
};

constexpr uint64_t kMaxParameters = uint64_t{1} << 50;

uint64_t U(int value) { return static_cast<uint64_t>(value); }

// Projections, biases and head norms of one attention layer with K and V heads.
uint64_t GroupedAttention(const HfFamily& family, const HfSizes& sizes, const LayerShape& layer,
                          bool bias) {
  const uint64_t q = U(sizes.heads) * U(sizes.head_dim);
  const uint64_t kv = U(layer.num_kv_heads) * U(layer.k_dim);
  uint64_t count = U(sizes.hidden) * (2 * q + 2 * kv);
  if (bias || family.qkv_bias) count += q + 2 * kv;
  if (bias) count += U(sizes.hidden);
  if (family.head_norms) count += 2 * U(sizes.head_dim);
  return count;
}

struct Experts {
  int num = 0, per_token = 0, width = 0, shared = 0, dense_layers = 0;
};

Result<Experts> ReadExperts(const HfFamily& family, const HfFields& fields, const HfSizes& sizes) {
  Experts experts;
  const char* count = family.parameters == ParameterRule::kMixtral       ? "num_local_experts"
                      : family.parameters == ParameterRule::kQwenExperts ? "num_experts"
                                                                         : "n_routed_experts";
  TQ_ASSIGN_OR_RETURN(experts.num, fields.Int(count, 1, kMaxPlannedExperts));
  TQ_ASSIGN_OR_RETURN(experts.per_token, fields.Int("num_experts_per_tok", 1, experts.num));
  experts.width = sizes.intermediate;
  if (family.parameters != ParameterRule::kMixtral) {
    TQ_ASSIGN_OR_RETURN(experts.width, fields.Int("moe_intermediate_size", 1, kMaxPlannedWidth));
  }
  if (family.parameters == ParameterRule::kDeepSeek) {
    TQ_ASSIGN_OR_RETURN(experts.shared, fields.Int("n_shared_experts", 0, experts.num, 0));
    TQ_ASSIGN_OR_RETURN(experts.dense_layers,
                        fields.Int("first_k_dense_replace", 0, sizes.num_layers, 0));
  }
  return experts;
}

// Feed-forward parts of all layers.
Status CountFeedForward(const HfFamily& family, const HfFields& fields, const HfSizes& sizes,
                        ModelShape* shape) {
  const uint64_t matrix = 3 * U(sizes.hidden);  // gate, up, down per unit of width
  const uint64_t dense = matrix * U(sizes.intermediate);
  if (family.parameters == ParameterRule::kGated) {
    shape->num_parameters += U(sizes.num_layers) * dense;
    return {};
  }
  TQ_ASSIGN_OR_RETURN(const Experts experts, ReadExperts(family, fields, sizes));
  const uint64_t expert_layers = U(sizes.num_layers - experts.dense_layers);
  const uint64_t expert = matrix * U(experts.width);
  const uint64_t router = U(sizes.hidden) * U(experts.num);
  shape->num_experts = experts.num;
  shape->experts_per_token = experts.per_token;
  shape->expert_parameters = ProductOf({expert_layers, U(experts.num), expert});
  shape->num_parameters =
      SumOf({shape->num_parameters, U(experts.dense_layers) * dense, shape->expert_parameters,
             ProductOf({expert_layers, SumOf({router, ProductOf({U(experts.shared), expert})})})});
  if (shape->num_parameters > kMaxParameters) return {};  // refused by the caller
  if (family.parameters == ParameterRule::kDeepSeek) {
    TQ_ASSIGN_OR_RETURN(const std::string method, fields.String("topk_method", ""));
    if (method == "noaux_tc") shape->num_parameters += expert_layers * U(experts.num);  // bias
  }
  return {};
}

// Attention of one MLA layer.
Result<uint64_t> LatentAttention(const HfFields& fields, const HfSizes& sizes) {
  TQ_ASSIGN_OR_RETURN(const int latent, fields.Int("kv_lora_rank", 1, kMaxPlannedHeadDim));
  TQ_ASSIGN_OR_RETURN(const int rope, fields.Int("qk_rope_head_dim", 1, kMaxPlannedHeadDim));
  TQ_ASSIGN_OR_RETURN(const int plain, fields.Int("qk_nope_head_dim", 1, kMaxPlannedHeadDim));
  TQ_ASSIGN_OR_RETURN(const int value, fields.Int("v_head_dim", 1, kMaxPlannedHeadDim));
  TQ_ASSIGN_OR_RETURN(const int q_rank, fields.Int("q_lora_rank", 0, kMaxPlannedHeadDim, 0));
  const uint64_t h = U(sizes.hidden), heads = U(sizes.heads);
  const uint64_t q = heads * U(plain + rope);
  const uint64_t query = q_rank == 0 ? h * q : h * U(q_rank) + U(q_rank) + U(q_rank) * q;
  return query + h * U(latent + rope) + U(latent) + U(latent) * heads * U(plain + value) +
         heads * U(value) * h;
}

}  // namespace

const HfFamily* FindHfFamily(std::string_view model_type) {
  for (const HfFamily& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::string HfFamilyNames() {
  std::string names;
  for (const HfFamily& family : kFamilies)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", family.model_type);
  return names;
}

Status CountParameters(const HfFamily& family, const HfFields& fields, const HfSizes& sizes,
                       ModelShape* shape) {
  if (family.parameters == ParameterRule::kUnknown) return {};
  TQ_ASSIGN_OR_RETURN(const bool tied, fields.Bool("tie_word_embeddings", family.tied));
  TQ_ASSIGN_OR_RETURN(const bool bias, fields.Bool("attention_bias", false));
  const uint64_t table = U(sizes.vocab) * U(sizes.hidden);
  shape->num_parameters = (tied ? 1 : 2) * table + U(sizes.hidden) +
                          U(sizes.num_layers) * U(family.norms_per_layer) * U(sizes.hidden);
  for (const LayerShape& layer : shape->layers) {
    if (layer.kind == LayerKind::kLatent) {
      TQ_ASSIGN_OR_RETURN(const uint64_t count, LatentAttention(fields, sizes));
      shape->num_parameters += count;
    } else {
      shape->num_parameters += GroupedAttention(family, sizes, layer, bias);
    }
  }
  TQ_RETURN_IF_ERROR(CountFeedForward(family, fields, sizes, shape));
  if (shape->num_parameters > kMaxParameters) {
    return Fail(ErrorCode::kCorrupt, "{}: the sizes multiply to more than {} parameters",
                fields.name(), kMaxParameters);
  }
  // The embedding is looked up by row: it is read for every token only where it is the output too.
  shape->active_parameters = shape->num_parameters - (tied ? 0 : table);
  if (shape->num_experts > 0) {
    shape->active_parameters -= shape->expert_parameters / U(shape->num_experts) *
                                U(shape->num_experts - shape->experts_per_token);
  }
  return {};
}

}  // namespace turboquant
