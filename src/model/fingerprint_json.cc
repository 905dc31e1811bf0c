#include "model/fingerprint_json.h"

namespace turboquant {

using Json = nlohmann::ordered_json;

Json ToJson(const ModelFingerprint& model) {
  return {{"architecture", model.architecture}, {"num_layers", model.num_layers},
          {"num_kv_heads", model.num_kv_heads}, {"head_dim", model.head_dim},
          {"tensor_hash", model.tensor_hash},   {"tokenizer_hash", model.tokenizer_hash}};
}

Result<ModelFingerprint> ParseFingerprint(const Json& json) {
  const auto text = [&](const char* key, std::string* value) {
    const bool ok = json.contains(key) && json[key].is_string();
    if (ok) *value = json[key].get<std::string>();
    return ok;
  };
  const auto count = [&](const char* key, int most, int* value) {
    const bool ok = json.contains(key) && json[key].is_number_unsigned() &&
                    json[key].get<uint64_t>() >= 1 &&
                    json[key].get<uint64_t>() <= static_cast<uint64_t>(most);
    if (ok) *value = json[key].get<int>();
    return ok;
  };
  ModelFingerprint model;
  const bool ok = json.is_object() && text("architecture", &model.architecture) &&
                  text("tensor_hash", &model.tensor_hash) &&
                  text("tokenizer_hash", &model.tokenizer_hash) &&
                  count("num_layers", 1 << 16, &model.num_layers) &&
                  count("num_kv_heads", 1 << 16, &model.num_kv_heads) &&
                  count("head_dim", 512, &model.head_dim);
  if (ok) return model;
  return Fail(ErrorCode::kInvalidArgument, "the description of the model is incomplete");
}

Status CheckSameModel(std::string_view file, const ModelFingerprint& made_for,
                      const ModelFingerprint& is) {
  const auto differs = [file](const char* what, const auto& left, const auto& right) {
    return Fail(ErrorCode::kInvalidArgument,
                "{} was made for another model: {} {}, this one has {}", file, what, left, right);
  };
  if (made_for.architecture != is.architecture)
    return differs("architecture", made_for.architecture, is.architecture);
  if (made_for.num_layers != is.num_layers)
    return differs("layers", made_for.num_layers, is.num_layers);
  if (made_for.num_kv_heads != is.num_kv_heads)
    return differs("KV heads", made_for.num_kv_heads, is.num_kv_heads);
  if (made_for.head_dim != is.head_dim) return differs("head size", made_for.head_dim, is.head_dim);
  if (made_for.tensor_hash != is.tensor_hash)
    return differs("weights", made_for.tensor_hash, is.tensor_hash);
  if (made_for.tokenizer_hash != is.tokenizer_hash)
    return differs("tokenizer", made_for.tokenizer_hash, is.tokenizer_hash);
  return {};
}

}  // namespace turboquant
