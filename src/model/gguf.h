// GGUF files (version 2 and 3, little endian), read and validated by us before anything else sees them.
// Format: the GGUF specification of the ggml project. Input is hostile until checked: every count, length and offset is
// checked against the file size and for overflow; a bad file gives kCorrupt with the place, never a crash.
#ifndef TURBOQUANT_MODEL_GGUF_H_
#define TURBOQUANT_MODEL_GGUF_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace turboquant {

enum class GgufType : uint32_t {
  kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9, kU64 = 10,
  kI64 = 11, kF64 = 12
};

struct GgufArray {
  GgufType element_type;
  std::vector<uint64_t> integers;      // integer and bool elements (sign-extended)
  std::vector<double> floats;          // f32, f64 elements
  std::vector<std::string_view> strings;  // into the file
  size_t size() const { return integers.size() + floats.size() + strings.size(); }
};
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string_view name;
  std::vector<uint64_t> shape;  // ne[0] first, 1..4 dims, every one > 0
  uint32_t ggml_type;           // checked against the types this build knows
  uint64_t offset;              // from the start of the file
  uint64_t bytes;
};

// Immutable after Parse; safe to read from many threads. Keeps views into `file`'s bytes, which must outlive it.
class Gguf {
 public:
  static Result<Gguf> Parse(std::span<const uint8_t> bytes, std::string_view name);

  const GgufTensor* FindTensor(std::string_view name) const;
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufValue* Find(std::string_view key) const;
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }

  // Typed getters: kCorrupt if the key has another type or is out of [min, max]; kNotFound if absent and no fallback.
  Result<uint64_t> GetUint(std::string_view key, uint64_t min, uint64_t max, std::optional<uint64_t> fallback = {}) const;
  Result<double> GetFloat(std::string_view key, double min, double max, std::optional<double> fallback = {}) const;
  Result<std::string_view> GetString(std::string_view key, std::optional<std::string_view> fallback = {}) const;

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }

 private:
  std::string name_;
  uint32_t version_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> metadata_index_, tensor_index_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_GGUF_H_
