#include "planner/hf_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include "model/arch/registry.h"
#include "base/printable_text.h"
#include "planner/hf_family.h"
#include "planner/hf_fields.h"

namespace turboquant {
namespace {

uint64_t U(int value) { return static_cast<uint64_t>(value); }

Result<HfSizes> ReadSizes(const HfFamily& family, const HfFields& fields) {
  HfSizes sizes;
  TQ_ASSIGN_OR_RETURN(sizes.num_layers, fields.Int("num_hidden_layers", 1, kMaxPlannedLayers));
  TQ_ASSIGN_OR_RETURN(sizes.hidden, fields.Int("hidden_size", 1, kMaxPlannedWidth));
  TQ_ASSIGN_OR_RETURN(sizes.heads, fields.Int("num_attention_heads", 1, kMaxPlannedHeads));
  TQ_ASSIGN_OR_RETURN(sizes.kv_heads,
                      fields.Int("num_key_value_heads", 1, kMaxPlannedHeads, sizes.heads));
  const int by_division = sizes.hidden / sizes.heads;
  TQ_ASSIGN_OR_RETURN(
      sizes.head_dim,
      fields.Int("head_dim", 1, kMaxPlannedHeadDim,
                 family.default_head_dim > 0 ? family.default_head_dim : by_division));
  if (sizes.head_dim < 1 || sizes.heads % sizes.kv_heads != 0) {
    return Fail(ErrorCode::kCorrupt,
                "{}: {} query heads of {} channels do not divide into {} key-value heads",
                fields.name(), sizes.heads, sizes.head_dim, sizes.kv_heads);
  }
  const bool divided = fields.Missing("head_dim") && family.default_head_dim == 0;
  if (divided && family.layers != LayerRule::kLatent && sizes.hidden % sizes.heads != 0) {
    return Fail(ErrorCode::kCorrupt,
                "{}: hidden_size {} does not divide into {} heads and 'head_dim' is missing",
                fields.name(), sizes.hidden, sizes.heads);
  }
  // A list by layer (Gemma 3n) gives no single width; it matters only for counting parameters.
  sizes.intermediate = 0;
  if (family.parameters != ParameterRule::kUnknown) {
    TQ_ASSIGN_OR_RETURN(sizes.intermediate, fields.Int("intermediate_size", 1, kMaxPlannedWidth));
  }
  const std::optional<int> vocab =
      family.default_vocab > 0 ? std::optional(family.default_vocab) : std::nullopt;
  TQ_ASSIGN_OR_RETURN(sizes.vocab, fields.Int("vocab_size", 1, kMaxPlannedWidth, vocab));
  return sizes;
}

// Which layers slide by the family's own rule.
Result<std::vector<bool>> SlidingByRule(const HfFamily& family, const HfFields& fields,
                                        int num_layers) {
  std::vector<bool> slides(U(num_layers), false);
  switch (family.sliding) {
    case SlidingRule::kNever:
      break;
    case SlidingRule::kAll:
      slides.assign(slides.size(), true);
      break;
    case SlidingRule::kUpperLayers: {
      TQ_ASSIGN_OR_RETURN(const bool use, fields.Bool("use_sliding_window", false));
      if (!use) break;
      TQ_ASSIGN_OR_RETURN(const int first, fields.Int("max_window_layers", 0, kMaxPlannedLayers));
      for (int i = first; i < num_layers; ++i) slides[U(i)] = true;
      break;
    }
    case SlidingRule::kEveryOther:
      for (int i = 0; i < num_layers; i += 2) slides[U(i)] = true;
      break;
    case SlidingRule::kPattern: {
      TQ_ASSIGN_OR_RETURN(const int period, fields.Int("sliding_window_pattern", 1,
                                                       kMaxPlannedLayers, family.default_pattern));
      for (int i = 0; i < num_layers; ++i) slides[U(i)] = (i + 1) % period != 0;
      break;
    }
  }
  return slides;
}

Result<LayerKind> KindOf(const std::string& type, const HfFields& fields) {
  if (type == "full_attention") return LayerKind::kFull;
  if (type == "sliding_attention") return LayerKind::kSliding;
  if (type == "linear_attention") return LayerKind::kRecurrent;
  return Fail(ErrorCode::kUnsupported,
              "{}: layers of type '{}' are not known; known: full_attention, sliding_attention, "
              "linear_attention",
              fields.name(), type);
}

// Kind of every layer, before sharing.
Result<std::vector<LayerKind>> ReadKinds(const HfFamily& family, const HfFields& fields,
                                         int num_layers) {
  std::vector<LayerKind> kinds(U(num_layers), LayerKind::kFull);
  if (!fields.Missing("layer_types")) {
    TQ_ASSIGN_OR_RETURN(const auto types, fields.Strings("layer_types", kinds.size()));
    for (size_t i = 0; i < types.size(); ++i) {
      TQ_ASSIGN_OR_RETURN(kinds[i], KindOf(types[i], fields));
      if (kinds[i] == LayerKind::kRecurrent && family.layers != LayerRule::kLinear) {
        return Fail(ErrorCode::kUnsupported, "{}: linear attention is not known of '{}' models",
                    fields.name(), family.model_type);
      }
    }
    return kinds;
  }
  if (family.layers == LayerRule::kLinear) {
    TQ_ASSIGN_OR_RETURN(const int period,
                        fields.Int("full_attention_interval", 1, kMaxPlannedLayers, 4));
    for (int i = 0; i < num_layers; ++i) {
      if ((i + 1) % period != 0) kinds[U(i)] = LayerKind::kRecurrent;
    }
    return kinds;
  }
  TQ_ASSIGN_OR_RETURN(const auto slides, SlidingByRule(family, fields, num_layers));
  for (size_t i = 0; i < kinds.size(); ++i) {
    if (slides[i]) kinds[i] = LayerKind::kSliding;
  }
  return kinds;
}

// Gated DeltaNet (Qwen3-Next): a short convolution over q, k and v, and a matrix per value head.
Result<LayerShape> LinearLayer(const HfFields& fields) {
  TQ_ASSIGN_OR_RETURN(const int k_heads, fields.Int("linear_num_key_heads", 1, kMaxPlannedHeads));
  TQ_ASSIGN_OR_RETURN(const int v_heads, fields.Int("linear_num_value_heads", 1, kMaxPlannedHeads));
  TQ_ASSIGN_OR_RETURN(const int k_dim, fields.Int("linear_key_head_dim", 1, kMaxPlannedHeadDim));
  TQ_ASSIGN_OR_RETURN(const int v_dim, fields.Int("linear_value_head_dim", 1, kMaxPlannedHeadDim));
  TQ_ASSIGN_OR_RETURN(const int kernel, fields.Int("linear_conv_kernel_dim", 1, 1 << 10));
  LayerShape layer{.kind = LayerKind::kRecurrent};
  layer.conv_values = U(kernel - 1) * (2 * U(k_heads) * U(k_dim) + U(v_heads) * U(v_dim));
  layer.state_values = U(v_heads) * U(k_dim) * U(v_dim);
  return layer;
}

Status ReadLatentLayers(const HfFields& fields, const HfSizes& sizes, ModelShape* shape) {
  TQ_ASSIGN_OR_RETURN(const int latent, fields.Int("kv_lora_rank", 1, kMaxPlannedHeadDim));
  TQ_ASSIGN_OR_RETURN(const int rope, fields.Int("qk_rope_head_dim", 1, kMaxPlannedHeadDim));
  const LayerShape layer = {
      .kind = LayerKind::kLatent, .num_kv_heads = 1, .k_dim = latent + rope, .v_dim = 0};
  shape->layers.assign(U(sizes.num_layers), layer);
  return {};
}

// The last layers read what the last layer of their kind before them stored.
Status ShareUpperLayers(const HfFields& fields, ModelShape* shape) {
  const int num_layers = static_cast<int>(shape->layers.size());
  TQ_ASSIGN_OR_RETURN(const int shared, fields.Int("num_kv_shared_layers", 0, num_layers - 1, 0));
  for (int i = num_layers - shared; i < num_layers; ++i)
    shape->layers[U(i)] = {.kind = LayerKind::kShared};
  return {};
}

Status ReadLayers(const HfFamily& family, const HfFields& fields, const HfSizes& sizes,
                  ModelShape* shape) {
  if (family.layers == LayerRule::kLatent) return ReadLatentLayers(fields, sizes, shape);
  TQ_ASSIGN_OR_RETURN(const auto kinds, ReadKinds(family, fields, sizes.num_layers));
  int window = 0;
  if (std::ranges::find(kinds, LayerKind::kSliding) != kinds.end()) {
    // No window although the family can have one: these layers see everything.
    TQ_ASSIGN_OR_RETURN(window, fields.Int("sliding_window", 1, kMaxPlannedContext, 0));
  }
  for (const LayerKind kind : kinds) {
    if (kind == LayerKind::kRecurrent) {
      TQ_ASSIGN_OR_RETURN(const LayerShape layer, LinearLayer(fields));
      shape->layers.push_back(layer);
      continue;
    }
    LayerShape layer = {
        .num_kv_heads = sizes.kv_heads, .k_dim = sizes.head_dim, .v_dim = sizes.head_dim};
    // A window that the context never fills is none.
    if (kind == LayerKind::kSliding && window > 0 &&
        (shape->max_context == 0 || window < shape->max_context)) {
      layer.kind = LayerKind::kSliding;
      layer.window = window;
    }
    shape->layers.push_back(layer);
  }
  if (family.layers == LayerRule::kSharedUpper) return ShareUpperLayers(fields, shape);
  return {};
}

// KV heads by layer, where a config lists them (DeciLM's name for it).
Status ReadHeadsByLayer(const HfFields& fields, ModelShape* shape) {
  constexpr const char* kKey = "num_key_value_heads_per_layer";
  if (fields.Missing(kKey)) return {};
  TQ_ASSIGN_OR_RETURN(const std::vector<int> heads,
                      fields.Ints(kKey, shape->layers.size(), 1, kMaxPlannedHeads));
  for (size_t i = 0; i < heads.size(); ++i) {
    if (shape->layers[i].kind == LayerKind::kFull) shape->layers[i].num_kv_heads = heads[i];
  }
  return {};
}

Status ModelWeightBytes(const HfFields& fields, const nlohmann::json& all, ModelShape* shape) {
  if (shape->num_parameters == 0) {
    shape->notes.push_back(
        "weights not counted: this family's parameters are not; give --weights-memory, or put "
        "model.safetensors.index.json beside the config");
    return {};
  }
  TQ_ASSIGN_OR_RETURN(const std::string old_name, fields.String("torch_dtype", "bfloat16"));
  TQ_ASSIGN_OR_RETURN(std::string dtype, fields.String("dtype", old_name));
  double bits = dtype == "float32" ? 32 : 16;
  if (const auto it = all.find("quantization_config"); it != all.end() && it->is_object()) {
    const HfFields quantization(*it, fields.name());
    TQ_ASSIGN_OR_RETURN(dtype, quantization.String("quant_method", "unnamed"));
    if (dtype != "fp8") {
      shape->notes.push_back(fmt::format(
          "weights not counted: sizes of quantization '{}' are not known; give --weights-memory",
          dtype));
      return {};
    }
    bits = 8;
  }
  shape->weights_bytes =
      static_cast<uint64_t>(static_cast<double>(shape->num_parameters) * bits / 8);
  shape->weights_note = fmt::format("{:.4g} B parameters of {} bits ({})",
                                    static_cast<double>(shape->num_parameters) / 1e9, bits, dtype);
  return {};
}

}  // namespace

Result<ModelShape> ReadHfConfig(std::string_view json, std::string_view name) {
  const nlohmann::json all = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!all.is_object()) {
    return Fail(ErrorCode::kCorrupt, "{}: not a JSON object; want a GGUF or a config.json", name);
  }
  const bool nested = all.contains("text_config") && all["text_config"].is_object();
  const nlohmann::json& text = nested ? all["text_config"] : all;
  const HfFields fields(text, name);
  TQ_ASSIGN_OR_RETURN(const std::string type, fields.String("model_type", ""));
  const HfFamily* family = FindHfFamily(type);
  if (family == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                "{}: model_type '{}' is not known, and what its layers store is not guessed; "
                "known: {}",
                name, type, HfFamilyNames());
  }
  ModelShape shape{.architecture = type, .name = type, .path = std::string(name)};
  TQ_ASSIGN_OR_RETURN(const HfSizes sizes, ReadSizes(*family, fields));
  TQ_ASSIGN_OR_RETURN(shape.max_context, fields.Int("max_position_embeddings", 1,
                                                    kMaxPlannedContext, family->default_context));
  shape.num_heads = sizes.heads;
  shape.hidden_size = sizes.hidden;
  shape.vocab_size = sizes.vocab;
  shape.intermediate_size = sizes.intermediate;
  TQ_RETURN_IF_ERROR(ReadLayers(*family, fields, sizes, &shape));
  TQ_RETURN_IF_ERROR(ReadHeadsByLayer(fields, &shape));
  TQ_RETURN_IF_ERROR(CountParameters(*family, fields, sizes, &shape));
  TQ_RETURN_IF_ERROR(ModelWeightBytes(fields, all, &shape));
  if (nested) shape.notes.push_back("only the text part is counted (text_config)");
  if (FindArchitecture(type) == nullptr && type != "mistral") {
    shape.cannot_run = fmt::format("this version does not run '{}' models", type);
  }
  return shape;
}

}  // namespace turboquant
