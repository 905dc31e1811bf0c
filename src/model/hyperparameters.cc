#include "model/hyperparameters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model/arch/registry.h"
#include "model/vocabulary_check.h"

namespace turboquant {
namespace {

constexpr uint64_t kMaxLayers = 512;  // libllama's LLAMA_MAX_LAYERS
constexpr uint64_t kMaxHeads = 1024;
constexpr uint64_t kMaxHeadDim = 512;
constexpr uint64_t kMaxHidden = 1 << 16;
constexpr uint64_t kMaxIntermediate = 1 << 20;
constexpr uint64_t kMaxInt = std::numeric_limits<int32_t>::max();

// Keys of features that change the result and that our graphs do not compute. Allowed only with the
// value that means "off" (1 for factors).
struct Unsupported {
  std::string_view key;
  double neutral;
  std::string_view feature;
};
constexpr Unsupported kUnsupported[] = {
    {"expert_count", 0, "mixture of experts"},
    {"expert_used_count", 0, "mixture of experts"},
    {"nextn_predict_layers", 0, "next-token prediction layers"},
    {"embedding_length_out", 0, "an output size of its own"},
    {"pooling_type", 0, "pooling"},
    {"use_parallel_residual", 0, "parallel residual"},
    {"swin_norm", 0, "swin norm"},
    {"attention.causal", 1, "attention that is not causal"},
    {"attention.max_alibi_bias", 0, "ALiBi"},
    {"attention.clamp_kqv", 0, "clamped Q, K and V"},
    {"attention.scale", 0, "a softmax scale of its own"},
    {"attention.sliding_window_pattern", 0, "sliding windows in some layers only"},
    {"attention.temperature_length", 0, "attention temperature"},
    {"attn_logit_softcapping", 0, "soft caps"},
    {"final_logit_softcapping", 0, "soft caps"},
    {"logit_scale", 1, "a logit scale"},
    {"residual_scale", 1, "a residual scale"},
    {"embedding_scale", 1, "an embedding scale"},
    {"rope.scaling.attn_factor", 1, "a rotary attention factor"},
    {"rope.scaling.alpha", 0, "NTK-aware rotary scaling"},
};

// Typed access to the keys under the architecture's prefix; an absent required key is kCorrupt.
class KeyReader {
 public:
  KeyReader(const Gguf& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  std::string Key(std::string_view suffix) const { return fmt::format("{}.{}", prefix_, suffix); }
  const GgufEntry* Find(std::string_view suffix) const { return file_.FindEntry(Key(suffix)); }

  Result<int> Int(std::string_view suffix, uint64_t min, uint64_t max,
                  std::optional<uint64_t> fallback = {}) const {
    const std::string key = Key(suffix);
    TQ_RETURN_IF_ERROR(RefusePerLayer(key));
    TQ_ASSIGN_OR_RETURN(const uint64_t value, Required(file_.GetUint(key, min, max, fallback)));
    return static_cast<int>(value);
  }

  // Finite and > 0 as a float, whatever double the file holds.
  Result<float> PositiveFloat(std::string_view suffix, double max,
                              std::optional<double> fallback = {}) const {
    const std::string key = Key(suffix);
    TQ_RETURN_IF_ERROR(RefusePerLayer(key));
    TQ_ASSIGN_OR_RETURN(const double value, Required(file_.GetFloat(key, 0, max, fallback)));
    const float narrow = static_cast<float>(value);
    if (!(narrow > 0) || !std::isfinite(narrow)) {
      return Fail(ErrorCode::kCorrupt, "{}: key '{}' is {}, expected a number above 0",
                  file_.name(), key, value);
    }
    return narrow;
  }

  Result<std::string_view> String(std::string_view suffix, std::string_view fallback) const {
    return file_.GetString(Key(suffix), fallback);
  }

  template <typename T>
  static Result<T> Required(Result<T> value) {
    if (!value && value.error().code == ErrorCode::kNotFound)
      value.error().code = ErrorCode::kCorrupt;
    return value;
  }

 private:
  Status RefusePerLayer(const std::string& key) const {
    const GgufEntry* entry = file_.FindEntry(key);
    if (entry == nullptr || entry->type != GgufType::kArray) return {};
    return Fail(ErrorCode::kUnsupported,
                "{}: key '{}' has a value per layer; only one for all layers is supported",
                file_.name(), key);
  }

  const Gguf& file_;
  const std::string prefix_;
};

Status CheckSingleFile(const Gguf& file) {
  const GgufEntry* entry = file.FindEntry("split.count");
  if (entry != nullptr && entry->type != GgufType::kU16) {
    return Fail(ErrorCode::kCorrupt, "{}: key 'split.count' has type {}, expected u16", file.name(),
                GgufTypeName(entry->type));
  }
  TQ_ASSIGN_OR_RETURN(const uint64_t parts, file.GetUint("split.count", 0, 65535, 0));
  if (parts <= 1) return {};
  return Fail(ErrorCode::kUnsupported,
              "{}: a part of a model split into {} files; join them first (llama-gguf-split "
              "--merge FIRST_PART OUTPUT)",
              file.name(), parts);
}

std::optional<double> NumberOf(const GgufValue& value) {
  if (const auto* v = std::get_if<uint64_t>(&value)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<int64_t>(&value)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<double>(&value)) return *v;
  if (const auto* v = std::get_if<bool>(&value)) return *v ? 1 : 0;
  return {};
}

Status RefuseUnsupportedFeatures(const Gguf& file, const KeyReader& keys) {
  for (const Unsupported& entry : kUnsupported) {
    const GgufEntry* found = keys.Find(entry.key);
    if (found == nullptr || NumberOf(found->value) == entry.neutral) continue;
    return Fail(ErrorCode::kUnsupported, "{}: key '{}' asks for {}, which is not supported",
                file.name(), keys.Key(entry.key), entry.feature);
  }
  return {};
}

Status ReadSizes(const KeyReader& keys, ModelConfig* config) {
  TQ_ASSIGN_OR_RETURN(config->num_layers, keys.Int("block_count", 1, kMaxLayers));
  TQ_ASSIGN_OR_RETURN(config->max_context, keys.Int("context_length", 1, kMaxInt));
  TQ_ASSIGN_OR_RETURN(config->hidden_size, keys.Int("embedding_length", 1, kMaxHidden));
  TQ_ASSIGN_OR_RETURN(config->intermediate_size,
                      keys.Int("feed_forward_length", 1, kMaxIntermediate));
  TQ_ASSIGN_OR_RETURN(config->sliding_window, keys.Int("attention.sliding_window", 0, kMaxInt, 0));
  return {};
}

Status ReadHeads(const Gguf& file, const KeyReader& keys, ModelConfig* config) {
  TQ_ASSIGN_OR_RETURN(config->num_heads, keys.Int("attention.head_count", 1, kMaxHeads));
  TQ_ASSIGN_OR_RETURN(config->num_kv_heads, keys.Int("attention.head_count_kv", 1, kMaxHeads,
                                                     static_cast<uint64_t>(config->num_heads)));
  if (config->num_heads % config->num_kv_heads != 0) {
    return Fail(ErrorCode::kCorrupt, "{}: {} query heads do not divide into {} key-value heads",
                file.name(), config->num_heads, config->num_kv_heads);
  }
  const bool divides = config->hidden_size % config->num_heads == 0;
  if (!divides && keys.Find("attention.key_length") == nullptr) {
    return Fail(ErrorCode::kCorrupt,
                "{}: hidden size {} does not divide into {} heads and key '{}' is missing",
                file.name(), config->hidden_size, config->num_heads,
                keys.Key("attention.key_length"));
  }
  const auto by_division = static_cast<uint64_t>(config->hidden_size / config->num_heads);
  TQ_ASSIGN_OR_RETURN(config->head_dim, keys.Int("attention.key_length", 1, kMaxInt, by_division));
  TQ_ASSIGN_OR_RETURN(const int value_length,
                      keys.Int("attention.value_length", 1, kMaxInt, by_division));
  if (value_length != config->head_dim) {
    return Fail(ErrorCode::kUnsupported,
                "{}: keys of {} and values of {} channels per head; only equal sizes are supported",
                file.name(), config->head_dim, value_length);
  }
  if (config->head_dim % 16 != 0 || config->head_dim > static_cast<int>(kMaxHeadDim)) {
    return Fail(ErrorCode::kUnsupported,
                "{}: a head size of {} is not supported; supported: multiples of 16 up to {}",
                file.name(), config->head_dim, kMaxHeadDim);
  }
  return {};
}

// Positions are divided by `factor` with type linear (libllama's default when only the factor is
// there).
Status ReadRopeScaling(const Gguf& file, const KeyReader& keys, ModelConfig* config) {
  TQ_ASSIGN_OR_RETURN(const std::string_view type, keys.String("rope.scaling.type", "linear"));
  if (type == "none") return {};
  if (type != "linear") {
    return Fail(ErrorCode::kUnsupported,
                "{}: rotary scaling of type '{}' is not supported; supported: none, linear, and "
                "llama 3's factors "
                "(tensor rope_freqs.weight)",
                file.name(), PrintableText(type));
  }
  const std::string_view suffix =
      keys.Find("rope.scaling.factor") != nullptr ? "rope.scaling.factor" : "rope.scale_linear";
  if (const GgufEntry* entry = keys.Find(suffix);
      entry != nullptr && NumberOf(entry->value) != 0.0) {
    TQ_ASSIGN_OR_RETURN(const float factor, keys.PositiveFloat(suffix, 1e6));
    config->rope_scale = 1.0f / factor;
    if (!std::isfinite(config->rope_scale)) {
      return Fail(ErrorCode::kCorrupt, "{}: key '{}' is {}, too close to 0", file.name(),
                  keys.Key(suffix), factor);
    }
  }
  return {};
}

Status ReadRope(const Gguf& file, const KeyReader& keys, ModelConfig* config) {
  TQ_ASSIGN_OR_RETURN(config->rms_eps, keys.PositiveFloat("attention.layer_norm_rms_epsilon", 1));
  if (config->rms_eps >= 1) {
    return Fail(ErrorCode::kCorrupt, "{}: key '{}' is {}, expected a number below 1", file.name(),
                keys.Key("attention.layer_norm_rms_epsilon"), config->rms_eps);
  }
  TQ_ASSIGN_OR_RETURN(config->rope_theta, keys.PositiveFloat("rope.freq_base", 1e30, 10000));
  const auto head_dim = static_cast<uint64_t>(config->head_dim);
  TQ_ASSIGN_OR_RETURN(config->rope_dim, keys.Int("rope.dimension_count", 2, head_dim, head_dim));
  if (config->rope_dim % 2 != 0) {
    return Fail(ErrorCode::kCorrupt, "{}: key '{}' is {}, expected an even number", file.name(),
                keys.Key("rope.dimension_count"), config->rope_dim);
  }
  // None of the supported architectures rotates a part of a head, and libllama refuses it for them:
  // there is no oracle.
  if (config->rope_dim != config->head_dim) {
    return Fail(ErrorCode::kUnsupported,
                "{}: rotation of {} of {} channels per head is not supported for '{}'", file.name(),
                config->rope_dim, config->head_dim, config->architecture);
  }
  return ReadRopeScaling(file, keys, config);
}

Status ReadVocabularySize(const Gguf& file, const KeyReader& keys, ModelConfig* config) {
  const GgufTensor* embedding = file.FindTensor(kTokenEmbedding);
  if (embedding == nullptr)
    return Fail(ErrorCode::kCorrupt, "{}: tensor '{}' is missing", file.name(), kTokenEmbedding);
  const uint64_t rows = embedding->num_elements() / embedding->shape[0];
  if (rows > kMaxInt)
    return Fail(ErrorCode::kUnsupported, "{}: {} tokens are more than {}", file.name(), rows,
                kMaxInt);
  TQ_RETURN_IF_ERROR(keys.Int("vocab_size", rows, rows, rows));
  config->vocab_size = static_cast<int>(rows);
  return CheckVocabulary(file, rows);
}

Result<std::string_view> ReadArchitecture(const Gguf& file) {
  TQ_ASSIGN_OR_RETURN(const std::string_view kind, file.GetString("general.type", "model"));
  if (kind != "model") {
    return Fail(ErrorCode::kUnsupported, "{}: a GGUF of type '{}', not a model", file.name(),
                PrintableText(kind));
  }
  TQ_ASSIGN_OR_RETURN(const std::string_view name,
                      KeyReader::Required(file.GetString("general.architecture")));
  if (FindArchitecture(name) == nullptr) {
    return Fail(ErrorCode::kUnsupported, "{}: architecture '{}' is not supported; supported: {}",
                file.name(), PrintableText(name), ArchitectureNames());
  }
  return name;
}

std::string ShapeText(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Status CheckTensor(const Gguf& file, const TensorSpec& spec) {
  const GgufTensor* tensor = file.FindTensor(spec.name);
  if (tensor == nullptr) {
    if (!spec.required) return {};
    return Fail(ErrorCode::kCorrupt, "{}: tensor '{}' is missing, expected shape {}", file.name(),
                spec.name, ShapeText(spec.shape));
  }
  if (!tensor->HasShape(spec.shape)) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor '{}' has shape {}, expected {}", file.name(),
                spec.name, ShapeText(tensor->shape), ShapeText(spec.shape));
  }
  const GgmlTypeInfo* type = FindGgmlType(tensor->ggml_type);
  if (!type->is_weight) {
    return Fail(ErrorCode::kCorrupt, "{}: tensor '{}' has type {}, which is no type of weights",
                file.name(), spec.name, type->name);
  }
  return {};
}

// Angles are divided by these; a zero or NaN would only show as NaN logits.
Status CheckRopeFactors(const Gguf& file) {
  const GgufTensor* tensor = file.FindTensor("rope_freqs.weight");
  if (tensor == nullptr) return {};
  if (FindGgmlType(tensor->ggml_type)->name != "F32") {
    return Fail(ErrorCode::kUnsupported, "{}: tensor '{}' has type {}, expected F32", file.name(),
                tensor->name, FindGgmlType(tensor->ggml_type)->name);
  }
  const GgufArray factors = {GgufType::kF32, tensor->num_elements(), file.Data(*tensor), {}};
  for (uint64_t i = 0; i < factors.size(); ++i) {
    if (!(factors.Float(i) > 0) || !std::isfinite(factors.Float(i))) {
      return Fail(ErrorCode::kCorrupt,
                  "{}: tensor '{}' is {} at element {}, expected a finite number above 0",
                  file.name(), tensor->name, factors.Float(i), i);
    }
  }
  return {};
}

}  // namespace

Result<ModelConfig> ReadHyperparameters(const Gguf& file) {
  TQ_RETURN_IF_ERROR(CheckSingleFile(file));
  TQ_ASSIGN_OR_RETURN(const std::string_view architecture, ReadArchitecture(file));
  const KeyReader keys(file, architecture);
  TQ_RETURN_IF_ERROR(RefuseUnsupportedFeatures(file, keys));

  ModelConfig config;
  config.architecture = architecture;
  TQ_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.name", ""));
  config.name = PrintableText(name);
  TQ_RETURN_IF_ERROR(ReadSizes(keys, &config));
  TQ_RETURN_IF_ERROR(ReadHeads(file, keys, &config));
  TQ_RETURN_IF_ERROR(ReadRope(file, keys, &config));
  TQ_RETURN_IF_ERROR(ReadVocabularySize(file, keys, &config));
  config.weight_types = SummarizeWeightTypes(file);
  for (const GgufTensor& tensor : file.tensors()) config.num_parameters += tensor.num_elements();
  return config;
}

Status CheckTensors(const Gguf& file, const ModelConfig& config) {
  const std::vector<TensorSpec> specs = FindArchitecture(config.architecture)->tensors(config);
  std::unordered_set<std::string_view> known;
  for (const TensorSpec& spec : specs) {
    TQ_RETURN_IF_ERROR(CheckTensor(file, spec));
    known.insert(spec.name);
  }
  for (const GgufTensor& tensor : file.tensors()) {
    if (!known.contains(tensor.name)) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: tensor '{}' has no place in the graph of a '{}' model of {} layers",
                  file.name(), tensor.name, config.architecture, config.num_layers);
    }
  }
  return CheckRopeFactors(file);
}

std::string SummarizeWeightTypes(const Gguf& file) {
  std::map<std::string_view, int64_t> counts;
  for (const GgufTensor& tensor : file.tensors()) ++counts[FindGgmlType(tensor.ggml_type)->name];
  std::vector<std::pair<std::string_view, int64_t>> sorted(counts.begin(), counts.end());
  std::ranges::sort(sorted, {},
                    [](const auto& entry) { return std::pair(-entry.second, entry.first); });
  std::string text;
  for (const auto& [type, count] : sorted)
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", type, count);
  return text;
}

}  // namespace turboquant
