// llama.cpp: one row per token and layer in a ggml type, cells padded to 256 per sequence, windows
// kept with one micro-batch on top, recurrent states in f32 (llama-kv-cache.cpp,
// llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp; checked against the sizes that it logs in
// tests/planner/llama_log_test.cc).
#include <algorithm>
#include <array>

#include "planner/bytes.h"
#include "planner/profiles.h"

namespace turboquant {
namespace {

constexpr uint64_t kCellPadding = 256;
constexpr int kMicroBatch = 512;  // default of --ubatch-size

// A row is blocks of so many values, each of so many bytes.
struct GgmlFormat {
  std::string_view name;
  int values, bytes, scale_bytes;
};
constexpr std::array kFormats = {
    GgmlFormat{"f32", 1, 4, 0},    GgmlFormat{"f16", 1, 2, 0},    GgmlFormat{"bf16", 1, 2, 0},
    GgmlFormat{"q8_0", 32, 34, 2}, GgmlFormat{"q5_1", 32, 24, 4}, GgmlFormat{"q5_0", 32, 22, 2},
    GgmlFormat{"q4_1", 32, 20, 4}, GgmlFormat{"q4_0", 32, 18, 2}, GgmlFormat{"iq4_nl", 32, 18, 2},
};

Result<GgmlFormat> ParseGgmlFormat(std::string_view text) {
  std::string names;
  for (const GgmlFormat& format : kFormats) {
    if (format.name == text) return format;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", format.name);
  }
  return Fail(ErrorCode::kInvalidArgument, "llama.cpp has no cache type '{}'; it has {}", text,
              names);
}

// Families whose windows llama.cpp applies to its cache; it stores all tokens of the others.
bool KeepsWindows(std::string_view architecture) {
  constexpr std::array kWithWindows = {"gemma2",       "gemma3",  "gemma3_text", "gemma3n",
                                       "gemma3n_text", "gpt_oss", "gpt-oss"};
  return std::ranges::find(kWithWindows, architecture) != kWithWindows.end();
}

class LlamaCppProfile : public CacheProfile {
 public:
  LlamaCppProfile(std::string formats, std::vector<LayerLedger> layers,
                  std::vector<std::string> notes) {
    engine_ = EngineKind::kLlamaCpp;
    block_size_ = static_cast<int>(kCellPadding);
    formats_ = std::move(formats);
    layers_ = std::move(layers);
    notes_ = std::move(notes);
  }

  CacheBytes Bytes(int64_t context, int64_t num_seqs) const override {
    const auto tokens = static_cast<uint64_t>(context);
    const uint64_t cells = RoundUp(tokens, kCellPadding);
    CacheBytes sum;
    for (const LayerLedger& layer : layers_) {
      const auto window = static_cast<uint64_t>(layer.shape.window);
      const bool slides = layer.shape.kind == LayerKind::kSliding;
      const uint64_t kept =
          slides ? RoundUp(std::min(cells, window + kMicroBatch), kCellPadding) : cells;
      CacheBytes bytes = BytesOfSlots(layer, slides ? std::min(tokens, window) : tokens, kept);
      bytes.state = layer.state_bytes;
      AddTo(bytes, &sum);
    }
    return Times(sum, static_cast<uint64_t>(num_seqs));
  }
};

Result<LayerLedger> MakeLayer(const ModelShape& model, size_t index, const GgmlFormat& k,
                              const GgmlFormat& v) {
  LayerLedger layer{.shape = model.layers[index]};
  if (layer.shape.kind == LayerKind::kRecurrent) {
    layer.state_bytes = 4 * (layer.shape.conv_values + layer.shape.state_values);
    return layer;
  }
  if (layer.shape.kind == LayerKind::kSliding && !KeepsWindows(model.architecture)) {
    layer.shape.kind = LayerKind::kFull;
    layer.shape.window = 0;
  }
  for (const auto& [format, channels] :
       {std::pair(k, layer.shape.k_dim), std::pair(v, layer.shape.v_dim)}) {
    if (channels % format.values != 0) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: layer {}: {} packs {} values together, which do not divide heads of {}",
                  model.path, index, format.name, format.values, channels);
    }
    const double blocks = static_cast<double>(layer.shape.num_kv_heads) * channels / format.values;
    layer.payload += blocks * (format.bytes - format.scale_bytes);
    layer.scales += blocks * format.scale_bytes;
  }
  const auto values = static_cast<double>(layer.shape.ValuesPerToken());
  if (values > 0) {
    layer.bits_per_value = 8 * layer.BytesPerToken() / values;
    layer.format =
        layer.shape.v_dim == 0 ? std::string(k.name) : fmt::format("{}/{}", k.name, v.name);
  }
  return layer;
}

}  // namespace

ProfileResult MakeLlamaCppProfile(const ModelShape& model, const ProfileOptions& options) {
  const std::string& text = options.cache.kv_cache_dtype;
  const size_t slash = text.find('/');
  TQ_ASSIGN_OR_RETURN(const GgmlFormat k, ParseGgmlFormat(text.substr(0, slash)));
  TQ_ASSIGN_OR_RETURN(const GgmlFormat v,
                      ParseGgmlFormat(slash == std::string::npos ? text : text.substr(slash + 1)));
  if (!options.cache.kv_scale_granularity.empty() || !options.cache.kv_cache_dtype_layers.empty()) {
    return Fail(ErrorCode::kUnsupported,
                "--kv-scale-granularity and --kv-cache-dtype-layers: llama.cpp has one type for "
                "all layers, with the scales that belong to it");
  }
  std::vector<LayerLedger> layers;
  std::vector<std::string> notes;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    TQ_ASSIGN_OR_RETURN(LayerLedger layer, MakeLayer(model, i, k, v));
    if (layer.shape.kind != model.layers[i].kind && notes.empty()) {
      notes.push_back(fmt::format("llama.cpp keeps all tokens of '{}' models, not only the window",
                                  model.architecture));
    }
    layers.push_back(std::move(layer));
  }
  return std::make_unique<LlamaCppProfile>(fmt::format("{}/{}", k.name, v.name), std::move(layers),
                                           std::move(notes));
}

}  // namespace turboquant
