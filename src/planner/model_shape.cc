#include "planner/model_shape.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "model/arch/registry.h"
#include "model/hyperparameters.h"
#include "planner/bytes.h"
#include "planner/gguf_shape.h"
#include "planner/hf_config.h"

namespace turboquant {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxConfigBytes = size_t{16} << 20;

std::string_view Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// total_size of an index of safetensors files; nothing where there is none or it makes no sense.
std::optional<uint64_t> IndexedWeightBytes(const fs::path& folder) {
  const auto file = MappedFile::Open((folder / "model.safetensors.index.json").string());
  if (!file || file->bytes().size() > kMaxConfigBytes) return std::nullopt;
  const nlohmann::json index =
      nlohmann::json::parse(Text(*file), nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("metadata")) return std::nullopt;
  const nlohmann::json& metadata = index["metadata"];
  if (!metadata.is_object() || !metadata.contains("total_size")) return std::nullopt;
  const nlohmann::json& size = metadata["total_size"];
  if (!size.is_number_integer() || size.get<int64_t>() <= 0) return std::nullopt;
  return size.get<uint64_t>();
}

// Tensor bytes of a safetensors file: all but the header, whose length is its first 8 bytes.
std::optional<uint64_t> SafetensorsBytes(const fs::path& path) {
  const auto file = MappedFile::Open(path.string());
  if (!file || file->bytes().size() < 8) return std::nullopt;
  uint64_t header = 0;
  std::memcpy(&header, file->bytes().data(), sizeof(header));
  if (header > file->bytes().size() - 8) return std::nullopt;
  return file->bytes().size() - 8 - header;
}

// Sizes written beside the config, where there are any.
void ReadWeightsBeside(const fs::path& config, ModelShape* shape) {
  const fs::path folder = config.has_parent_path() ? config.parent_path() : fs::path(".");
  if (const auto bytes = IndexedWeightBytes(folder)) {
    shape->weights_bytes = *bytes;
    shape->weights_origin = Origin::kExact;
    shape->weights_note = "model.safetensors.index.json";
  } else if (const auto single = SafetensorsBytes(folder / "model.safetensors")) {
    shape->weights_bytes = *single;
    shape->weights_origin = Origin::kExact;
    shape->weights_note = "model.safetensors";
  }
  if (shape->weights_origin != Origin::kExact) return;
  std::erase_if(shape->notes,
                [](const std::string& note) { return note.starts_with("weights not counted"); });
}

}  // namespace

std::string_view Name(LayerKind kind) {
  switch (kind) {
    case LayerKind::kFull:
      return "full";
    case LayerKind::kSliding:
      return "sliding";
    case LayerKind::kShared:
      return "shared";
    case LayerKind::kLatent:
      return "latent";
    case LayerKind::kRecurrent:
      return "recurrent";
  }
  return "";
}

std::string_view Name(Origin origin) {
  switch (origin) {
    case Origin::kExact:
      return "exact";
    case Origin::kMeasured:
      return "measured";
    case Origin::kModelled:
      return "modelled";
  }
  return "";
}

ModelShape ModelShapeOf(const ModelConfig& config) {
  ModelShape shape{.architecture = config.architecture, .name = config.name, .is_gguf = true};
  LayerShape layer = {
      .num_kv_heads = config.num_kv_heads, .k_dim = config.head_dim, .v_dim = config.head_dim};
  if (config.sliding_window > 0 && config.sliding_window < config.max_context) {
    layer.kind = LayerKind::kSliding;
    layer.window = config.sliding_window;
  }
  shape.layers.assign(static_cast<size_t>(config.num_layers), layer);
  shape.num_heads = config.num_heads;
  shape.hidden_size = config.hidden_size;
  shape.vocab_size = config.vocab_size;
  shape.intermediate_size = config.intermediate_size;
  shape.max_context = config.max_context;
  shape.num_parameters = config.num_parameters;
  shape.active_parameters = config.num_parameters;
  shape.weights_origin = Origin::kExact;
  shape.weights_note = config.weight_types;
  return shape;
}

Result<ModelShape> ReadModelShape(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const fs::path config = fs::path(path) / "config.json";
    if (fs::exists(config, ignored)) return ReadModelShape(config.string());
    return Fail(ErrorCode::kNotFound, "{}: a folder without a config.json", path);
  }
  TQ_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (Text(file).starts_with("GGUF")) return ReadGgufShape(file.bytes(), path);
  if (file.bytes().size() > kMaxConfigBytes) {
    return Fail(ErrorCode::kCorrupt, "{}: neither a GGUF nor a config.json", path);
  }
  TQ_ASSIGN_OR_RETURN(ModelShape shape, ReadHfConfig(Text(file), path));
  ReadWeightsBeside(path, &shape);
  return shape;
}

}  // namespace turboquant
