#include "planner/gguf_shape.h"

#include <array>
#include <limits>

#include "model/arch/registry.h"
#include "model/hyperparameters.h"
#include "base/printable_text.h"
#include "planner/bytes.h"
#include "planner/hf_fields.h"

namespace turboquant {
namespace {

// Architectures that this build does not run, or not with all their features, but whose cache is
// known. Windows: every `window_period`-th layer sees everything, the others a window; 0: a list in
// the file says which, or none has one.
struct KnownArchitecture {
  std::string_view name;
  int window_period = 0;
};
constexpr std::array kKnown = {KnownArchitecture{"deepseek2"}, KnownArchitecture{"gemma2", 2},
                               KnownArchitecture{"gemma3", 6}, KnownArchitecture{"gpt-oss", 2},
                               KnownArchitecture{"llama"},     KnownArchitecture{"phi3"},
                               KnownArchitecture{"qwen2"},     KnownArchitecture{"qwen2moe"},
                               KnownArchitecture{"qwen3"},     KnownArchitecture{"qwen3moe"}};

// Tensors as they lie in the file. Where our own loader would repack some, the ledger of a model
// that it runs has the exact figure instead (model/footprint.h).
void CountTensors(const Gguf& file, ModelShape* shape) {
  shape->num_parameters = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    shape->weights_bytes = SumOf({shape->weights_bytes, tensor.bytes});
    shape->num_parameters = SumOf({shape->num_parameters, tensor.num_elements()});
  }
  shape->active_parameters = shape->num_parameters;
  shape->weights_origin = Origin::kExact;
  shape->weights_note = SummarizeWeightTypes(file);
}

class Keys {
 public:
  Keys(const Gguf& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  std::string Key(std::string_view suffix) const { return fmt::format("{}.{}", prefix_, suffix); }
  bool Has(std::string_view suffix) const { return file_.FindEntry(Key(suffix)) != nullptr; }

  Result<int> Int(std::string_view suffix, int min, int max,
                  std::optional<int> fallback = {}) const {
    const std::optional<uint64_t> value =
        fallback ? std::optional(static_cast<uint64_t>(*fallback)) : std::nullopt;
    auto found =
        file_.GetUint(Key(suffix), static_cast<uint64_t>(min), static_cast<uint64_t>(max), value);
    if (!found && found.error().code == ErrorCode::kNotFound)
      found.error().code = ErrorCode::kCorrupt;
    if (!found) return std::unexpected(found.error());
    return static_cast<int>(*found);
  }

  // One number for all layers, or a list of one for each.
  Result<std::vector<int>> PerLayer(std::string_view suffix, int num_layers, int min, int max,
                                    int fallback) const {
    const GgufEntry* entry = file_.FindEntry(Key(suffix));
    const auto* list = entry == nullptr ? nullptr : std::get_if<GgufArray>(&entry->value);
    if (list == nullptr) {
      TQ_ASSIGN_OR_RETURN(const int value, Int(suffix, min, max, fallback));
      return std::vector<int>(static_cast<size_t>(num_layers), value);
    }
    if (!list->is_integer() || list->size() != static_cast<uint64_t>(num_layers)) {
      return Fail(ErrorCode::kCorrupt,
                  "{}: key '{}': expected a whole number for each of {} layers", file_.name(),
                  Key(suffix), num_layers);
    }
    std::vector<int> values;
    for (uint64_t i = 0; i < list->size(); ++i) {
      if (list->Integer(i) < min || list->Integer(i) > max) {
        return Fail(ErrorCode::kCorrupt, "{}: key '{}' holds {}, expected {} to {}", file_.name(),
                    Key(suffix), list->Integer(i), min, max);
      }
      values.push_back(static_cast<int>(list->Integer(i)));
    }
    return values;
  }

 private:
  const Gguf& file_;
  const std::string prefix_;
};

// Which layers have a window: by the file's list, else by the architecture's rule.
Result<std::vector<int>> ReadWindowed(const Keys& keys, const KnownArchitecture& known,
                                      int num_layers) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (keys.Has(kPattern)) return keys.PerLayer(kPattern, num_layers, 0, 1, 0);
  std::vector<int> windowed(static_cast<size_t>(num_layers), 0);
  for (int i = 0; known.window_period > 0 && i < num_layers; ++i)
    windowed[static_cast<size_t>(i)] = (i + 1) % known.window_period != 0 ? 1 : 0;
  return windowed;
}

Status ReadLayers(const Keys& keys, const KnownArchitecture& known, ModelShape* shape) {
  TQ_ASSIGN_OR_RETURN(const int num_layers, keys.Int("block_count", 1, kMaxPlannedLayers));
  TQ_ASSIGN_OR_RETURN(const auto heads, keys.PerLayer("attention.head_count_kv", num_layers, 1,
                                                      kMaxPlannedHeads, shape->num_heads));
  const int by_division = shape->hidden_size / shape->num_heads;
  TQ_ASSIGN_OR_RETURN(const int k_dim,
                      keys.Int("attention.key_length", 1, kMaxPlannedHeadDim, by_division));
  TQ_ASSIGN_OR_RETURN(const int v_dim,
                      keys.Int("attention.value_length", 1, kMaxPlannedHeadDim, by_division));
  TQ_ASSIGN_OR_RETURN(const int window,
                      keys.Int("attention.sliding_window", 0, kMaxPlannedContext, 0));
  TQ_ASSIGN_OR_RETURN(const auto windowed, ReadWindowed(keys, known, num_layers));
  // Files of MLA models that llama.cpp caches as latents name the sizes of the expanded heads too.
  const bool latent = known.name == "deepseek2" && keys.Has("attention.key_length_mla");
  for (size_t i = 0; i < heads.size(); ++i) {
    LayerShape layer = {.num_kv_heads = heads[i], .k_dim = k_dim, .v_dim = v_dim};
    if (latent) layer = {.kind = LayerKind::kLatent, .num_kv_heads = 1, .k_dim = k_dim, .v_dim = 0};
    if (windowed[i] != 0 && window > 0 && window < shape->max_context) {
      layer.kind = LayerKind::kSliding;
      layer.window = window;
    }
    shape->layers.push_back(layer);
  }
  return {};
}

// A model that this build refuses for `reason`.
Result<ModelShape> ReadForeignShape(const Gguf& file, const Error& reason) {
  TQ_ASSIGN_OR_RETURN(const std::string_view name, file.GetString("general.architecture"));
  const KnownArchitecture* known = nullptr;
  for (const KnownArchitecture& candidate : kKnown) {
    if (candidate.name == name) known = &candidate;
  }
  if (known == nullptr) return std::unexpected(reason);
  const Keys keys(file, name);
  ModelShape shape{.architecture = std::string(name), .is_gguf = true};
  TQ_ASSIGN_OR_RETURN(const std::string_view title, file.GetString("general.name", name));
  shape.name = PrintableText(title);
  TQ_ASSIGN_OR_RETURN(shape.hidden_size, keys.Int("embedding_length", 1, kMaxPlannedWidth));
  TQ_ASSIGN_OR_RETURN(shape.num_heads, keys.Int("attention.head_count", 1, kMaxPlannedHeads));
  TQ_ASSIGN_OR_RETURN(shape.max_context, keys.Int("context_length", 1, kMaxPlannedContext));
  const GgufTensor* embedding = file.FindTensor(kTokenEmbedding);
  const uint64_t rows = embedding == nullptr ? 0 : embedding->num_elements() / embedding->shape[0];
  if (rows > static_cast<uint64_t>(kMaxPlannedWidth)) {
    return Fail(ErrorCode::kCorrupt, "{}: {} rows of tensor '{}' are too many", file.name(), rows,
                kTokenEmbedding);
  }
  shape.vocab_size = static_cast<int>(rows);
  TQ_RETURN_IF_ERROR(ReadLayers(keys, *known, &shape));
  shape.cannot_run = reason.message;
  return shape;
}

}  // namespace

Result<ModelShape> ReadGgufShape(std::span<const uint8_t> bytes, const std::string& path) {
  TQ_ASSIGN_OR_RETURN(const Gguf file, Gguf::Parse(bytes, path));
  const auto config = ReadHyperparameters(file);
  ModelShape shape;
  if (config) {
    TQ_RETURN_IF_ERROR(CheckTensors(file, *config));
    shape = ModelShapeOf(*config);
  } else if (config.error().code == ErrorCode::kUnsupported) {
    TQ_ASSIGN_OR_RETURN(shape, ReadForeignShape(file, config.error()));
  } else {
    return std::unexpected(config.error());
  }
  shape.path = path;
  CountTensors(file, &shape);
  return shape;
}

}  // namespace turboquant
