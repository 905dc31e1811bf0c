// Writes GGUF files in memory for tests: well-formed ones, and ones with a wrong count, offset or
// type where a test asks.
#ifndef TURBOQUANT_MODEL_GGUF_TEST_UTIL_H_
#define TURBOQUANT_MODEL_GGUF_TEST_UTIL_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf.h"

namespace turboquant {

class ByteWriter {
 public:
  template <typename T>
  void Number(T value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void String(std::string_view text) {
    Number<uint64_t>(text.size());
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  void PadTo(uint64_t alignment) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
  }
  void Append(std::span<const uint8_t> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
  }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

// Keys and tensors in insertion order; Set and Tensor replace what has the same name.
class GgufBuilder {
 public:
  struct TensorEntry {
    std::string name;
    std::vector<uint64_t> shape;
    uint32_t type = 0;
    std::optional<uint64_t> offset;  // absent: where it belongs
  };

  template <typename T>
  GgufBuilder& Set(std::string_view key, GgufType type, T value) {
    ByteWriter w;
    w.Number(value);
    return SetRaw(key, type, std::move(w.bytes()));
  }
  GgufBuilder& U32(std::string_view key, uint32_t value) { return Set(key, GgufType::kU32, value); }
  GgufBuilder& F32(std::string_view key, float value) { return Set(key, GgufType::kF32, value); }
  GgufBuilder& Bool(std::string_view key, bool value) {
    return Set<uint8_t>(key, GgufType::kBool, value);
  }
  GgufBuilder& String(std::string_view key, std::string_view text) {
    ByteWriter w;
    w.String(text);
    return SetRaw(key, GgufType::kString, std::move(w.bytes()));
  }
  GgufBuilder& Strings(std::string_view key, std::span<const std::string> texts) {
    ByteWriter w;
    w.Number(static_cast<uint32_t>(GgufType::kString));
    w.Number<uint64_t>(texts.size());
    for (const std::string& text : texts) w.String(text);
    return SetRaw(key, GgufType::kArray, std::move(w.bytes()));
  }
  template <typename T>
  GgufBuilder& Array(std::string_view key, GgufType element, std::span<const T> values) {
    ByteWriter w;
    w.Number(static_cast<uint32_t>(element));
    w.Number<uint64_t>(values.size());
    for (const T& value : values) w.Number(value);
    return SetRaw(key, GgufType::kArray, std::move(w.bytes()));
  }
  // value: the bytes after the type.
  GgufBuilder& SetRaw(std::string_view key, GgufType type, std::vector<uint8_t> value) {
    for (Entry& entry : entries_) {
      if (entry.key == key) {
        entry = {std::string(key), type, std::move(value)};
        return *this;
      }
    }
    entries_.push_back({std::string(key), type, std::move(value)});
    return *this;
  }
  GgufBuilder& AddDuplicate(std::string_view key) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].key == key) {
        entries_.push_back(Entry(entries_[i]));
        break;
      }
    }
    return *this;
  }
  GgufBuilder& Erase(std::string_view key) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
    return *this;
  }

  GgufBuilder& Tensor(std::string_view name, std::vector<uint64_t> shape, uint32_t type = 0) {
    for (TensorEntry& tensor : tensors) {
      if (tensor.name == name) {
        tensor.shape = std::move(shape);
        tensor.type = type;
        return *this;
      }
    }
    tensors.push_back({std::string(name), std::move(shape), type, {}});
    return *this;
  }
  GgufBuilder& EraseTensor(std::string_view name) {
    std::erase_if(tensors, [&](const TensorEntry& tensor) { return tensor.name == name; });
    return *this;
  }

  // Tensor data are `fill` in every byte.
  std::vector<uint8_t> Build(uint8_t fill = 0) const {
    ByteWriter w;
    for (const char c : {'G', 'G', 'U', 'F'}) w.Number(c);
    w.Number(version);
    w.Number(num_tensors.value_or(tensors.size()));
    w.Number(num_entries.value_or(entries_.size()));
    for (const Entry& entry : entries_) {
      w.String(entry.key);
      w.Number(static_cast<uint32_t>(entry.type));
      w.Append(entry.value);
    }
    uint64_t data_bytes = 0;
    for (const TensorEntry& tensor : tensors) {
      w.String(tensor.name);
      w.Number(static_cast<uint32_t>(tensor.shape.size()));
      for (const uint64_t dim : tensor.shape) w.Number(dim);
      w.Number(tensor.type);
      w.Number(tensor.offset.value_or(data_bytes));
      data_bytes += (Bytes(tensor) + alignment - 1) / alignment * alignment;
    }
    w.PadTo(alignment);
    w.bytes().resize(w.bytes().size() + data_bytes, fill);
    return std::move(w.bytes());
  }

  uint32_t version = 3;
  uint64_t alignment = 32;  // used; the key is the caller's
  std::optional<uint64_t> num_tensors, num_entries;
  std::vector<TensorEntry> tensors;

 private:
  struct Entry {
    std::string key;
    GgufType type;
    std::vector<uint8_t> value;
  };

  // Of shapes that make no sense: 0, the file then has no data for them.
  static uint64_t Bytes(const TensorEntry& tensor) {
    const GgmlTypeInfo* type = FindGgmlType(tensor.type);
    uint64_t elements = 1;
    for (const uint64_t dim : tensor.shape) elements *= dim;
    if (type == nullptr || elements > (1u << 24)) return 0;
    return elements / type->block_size * type->type_size;
  }

  std::vector<Entry> entries_;
};

// The smallest complete model: one layer, two heads of 16 that share one KV head, byte-level BPE of
// 259 tokens.
inline GgufBuilder TinyModel(const std::string& architecture = "llama") {
  GgufBuilder b;
  const auto key = [&](std::string_view suffix) {
    return architecture + "." + std::string(suffix);
  };
  b.String("general.architecture", architecture).String("general.name", "tiny");
  b.U32(key("block_count"), 1).U32(key("context_length"), 128).U32(key("embedding_length"), 32);
  b.U32(key("feed_forward_length"), 64)
      .U32(key("attention.head_count"), 2)
      .U32(key("attention.head_count_kv"), 1);
  b.F32(key("attention.layer_norm_rms_epsilon"), 1e-5f).F32(key("rope.freq_base"), 10000.0f);
  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back("token" + std::to_string(byte));
  std::vector<int32_t> types(tokens.size(), 1);
  const std::vector<std::string> merges = {"a b"};
  b.String("tokenizer.ggml.model", "gpt2").String("tokenizer.ggml.pre", "gpt-2");
  b.Strings("tokenizer.ggml.tokens", tokens).Strings("tokenizer.ggml.merges", merges);
  b.Array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, types);
  b.U32("tokenizer.ggml.bos_token_id", 0).U32("tokenizer.ggml.eos_token_id", 2);

  b.Tensor("token_embd.weight", {32, 259}).Tensor("output_norm.weight", {32});
  const std::string layer = "blk.0.";
  b.Tensor(layer + "attn_norm.weight", {32}).Tensor(layer + "attn_q.weight", {32, 32});
  b.Tensor(layer + "attn_k.weight", {32, 16}).Tensor(layer + "attn_v.weight", {32, 16});
  b.Tensor(layer + "attn_output.weight", {32, 32}).Tensor(layer + "ffn_norm.weight", {32});
  b.Tensor(layer + "ffn_gate.weight", {32, 64}).Tensor(layer + "ffn_up.weight", {32, 64});
  b.Tensor(layer + "ffn_down.weight", {64, 32});
  if (architecture == "qwen3") {
    b.Tensor(layer + "attn_q_norm.weight", {16}).Tensor(layer + "attn_k_norm.weight", {16});
  }
  return b;
}

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_GGUF_TEST_UTIL_H_
