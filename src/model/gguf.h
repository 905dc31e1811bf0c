// GGUF files (version 2 and 3, little endian), read and validated by us before anything else sees
// them. Format: the GGUF specification of the ggml project. Input is hostile until checked: every
// count, length and offset is checked against the file size and for overflow; a bad file gives
// kCorrupt with the place, never a crash. Whatever Parse accepts, ggml's own reader (gguf.cpp)
// accepts too, so libllama may open the same file for its vocabulary.
#ifndef TURBOQUANT_MODEL_GGUF_H_
#define TURBOQUANT_MODEL_GGUF_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/error.h"
#include "model/ggml_types.h"
#include "base/printable_text.h"

namespace turboquant {

enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12
};
std::string_view GgufTypeName(GgufType type);  // "u32"

// A view of the elements as they lie in the file; nothing is copied but the places of strings.
// Arrays of arrays are refused by Parse.
struct GgufArray {
  GgufType element_type = GgufType::kU8;
  uint64_t count = 0;
  std::span<const uint8_t> raw;           // numbers and bools: count elements, unaligned
  std::vector<std::string_view> strings;  // kString: count views into the file

  uint64_t size() const { return count; }
  bool is_integer() const;  // kU8..kI32, kU64, kI64, kBool
  bool is_float() const { return element_type == GgufType::kF32 || element_type == GgufType::kF64; }
  int64_t Integer(uint64_t i)
      const;  // is_integer() and i < count (CHECK); kU64 above INT64_MAX gives INT64_MAX
  double Float(uint64_t i) const;  // is_float() and i < count (CHECK)
};
// Unsigned integers, signed integers, floats, bool, string (view into the file), array.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

struct GgufEntry {
  std::string_view key;
  GgufType type;  // as written in the file: libllama wants some keys to be exactly u32
  GgufValue value;
};

struct GgufTensor {
  std::string_view name;        // printable UTF-8, 1..63 bytes
  std::vector<uint64_t> shape;  // ne[0] first, 1..4 dims, every one > 0
  uint32_t ggml_type;           // one that FindGgmlType knows
  uint64_t offset;              // from the start of the file
  uint64_t bytes;               // offset + bytes <= file size
  // Rank does not count trailing ones: [576] and [576, 1] are the same tensor.
  bool HasShape(std::span<const uint64_t> expected) const;
  uint64_t num_elements() const;
};

// Immutable after Parse; safe to read from many threads. Keeps views into `bytes`, which must
// outlive it.
class Gguf {
 public:
  static constexpr uint64_t kMaxArrayElements = 1u << 24;
  static constexpr uint64_t kMaxStringBytes = 1u << 26;

  // name: the path, for messages.
  static Result<Gguf> Parse(std::span<const uint8_t> bytes, std::string_view name);

  const GgufTensor* FindTensor(std::string_view name) const;
  std::span<const GgufTensor> tensors() const { return tensors_; }
  std::span<const uint8_t> Data(const GgufTensor& tensor) const {
    return bytes_.subspan(tensor.offset, tensor.bytes);
  }

  const GgufEntry* FindEntry(std::string_view key) const;
  const GgufValue* Find(std::string_view key) const;
  const std::vector<GgufEntry>& metadata() const { return metadata_; }

  // Typed getters: kCorrupt if the key has another type or is out of [min, max] (NaN always is);
  // kNotFound if absent and no fallback. GetUint takes any integer type, GetFloat f32 and f64.
  Result<uint64_t> GetUint(std::string_view key, uint64_t min, uint64_t max,
                           std::optional<uint64_t> fallback = {}) const;
  Result<double> GetFloat(std::string_view key, double min, double max,
                          std::optional<double> fallback = {}) const;
  Result<std::string_view> GetString(std::string_view key,
                                     std::optional<std::string_view> fallback = {}) const;
  Result<bool> GetBool(std::string_view key, std::optional<bool> fallback = {}) const;
  // nullptr: no such key. kCorrupt if it is no array.
  Result<const GgufArray*> GetArray(std::string_view key) const;

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }

 private:
  friend class GgufParser;
  std::string name_;
  std::span<const uint8_t> bytes_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> metadata_index_, tensor_index_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_GGUF_H_
