#include "model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"

namespace turboquant {
namespace {

static_assert(std::endian::native == std::endian::little,
              "GGUF files are little endian and are read in place");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kMaxTensorName = 63;  // GGML_MAX_NAME is 64 with the terminating zero
constexpr uint64_t kMaxKey = 65535;      // GGUF specification
constexpr uint64_t kMaxAlignment = 1 << 16;
constexpr uint64_t kMaxDims = 4;
// Smallest encodings: a key of one byte with a one-byte value; a tensor of one-byte name and one
// dimension.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Bytes of a scalar of this type; 0 for strings, arrays and unknown types.
uint64_t ScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

template <typename T>
T Load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

std::string ShapeText(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "unknown";
}

bool GgufArray::is_integer() const {
  switch (element_type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kU16:
    case GgufType::kI16:
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kBool:
    case GgufType::kU64:
    case GgufType::kI64:
      return true;
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kString:
    case GgufType::kArray:
      return false;
  }
  return false;
}

int64_t GgufArray::Integer(uint64_t i) const {
  CHECK_LT(i, count);
  CHECK(is_integer());
  const uint8_t* p = raw.data() + i * ScalarBytes(element_type);
  switch (element_type) {
    case GgufType::kU8:
      return *p;
    case GgufType::kI8:
      return static_cast<int8_t>(*p);
    case GgufType::kU16:
      return Load<uint16_t>(p);
    case GgufType::kI16:
      return Load<int16_t>(p);
    case GgufType::kU32:
      return Load<uint32_t>(p);
    case GgufType::kI32:
      return Load<int32_t>(p);
    case GgufType::kBool:
      return *p != 0;
    case GgufType::kU64:
      return static_cast<int64_t>(std::min<uint64_t>(
          Load<uint64_t>(p), static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
    case GgufType::kI64:
      return Load<int64_t>(p);
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return 0;
}

double GgufArray::Float(uint64_t i) const {
  CHECK_LT(i, count);
  CHECK(is_float());
  if (element_type == GgufType::kF64) return Load<double>(raw.data() + i * 8);
  return static_cast<double>(Load<float>(raw.data() + i * 4));
}

bool GgufTensor::HasShape(std::span<const uint64_t> expected) const {
  for (size_t i = 0; i < std::max(shape.size(), expected.size()); ++i) {
    if ((i < shape.size() ? shape[i] : 1) != (i < expected.size() ? expected[i] : 1)) return false;
  }
  return true;
}

uint64_t GgufTensor::num_elements() const {
  uint64_t n = 1;
  for (uint64_t dim : shape) n *= dim;
  return n;
}

// Reads front to back; `pos_` is the place in the file of the next byte.
class GgufParser {
 public:
  GgufParser(std::span<const uint8_t> bytes, std::string_view name) : bytes_(bytes) {
    gguf_.name_ = name;
    gguf_.bytes_ = bytes;
  }

  Result<Gguf> Run() {
    TQ_RETURN_IF_ERROR(ReadHeader());
    TQ_RETURN_IF_ERROR(ReadMetadata());
    TQ_RETURN_IF_ERROR(ReadAlignment());
    TQ_RETURN_IF_ERROR(ReadTensors());
    TQ_RETURN_IF_ERROR(PlaceTensors());
    return std::move(gguf_);
  }

 private:
  uint64_t remaining() const { return bytes_.size() - pos_; }

  template <typename... Args>
  std::unexpected<Error> Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorCode::kCorrupt, "{}: {}", gguf_.name_,
                fmt::format(format, std::forward<Args>(args)...));
  }

  template <typename T>
  Result<T> Read(std::string_view what) {
    if (remaining() < sizeof(T)) {
      return Corrupt("the file ends at byte {}, inside {}", bytes_.size(), what);
    }
    const T value = Load<T>(bytes_.data() + pos_);
    pos_ += sizeof(T);
    return value;
  }

  Result<std::string_view> ReadString(std::string_view what, uint64_t max_bytes) {
    TQ_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
    if (length > remaining()) {
      return Corrupt("{} at byte {} claims {} bytes, the file has {} left", what, pos_, length,
                     remaining());
    }
    if (length > max_bytes)
      return Corrupt("{} at byte {} has {} bytes, more than {}", what, pos_, length, max_bytes);
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + pos_, length);
    pos_ += length;
    return text;
  }

  Status ReadHeader() {
    if (bytes_.empty()) return Corrupt("the file is empty");
    TQ_ASSIGN_OR_RETURN(const uint32_t magic, Read<uint32_t>("the magic bytes"));
    if (magic != kMagic)
      return Corrupt("not a GGUF file (the first bytes are {:08x}, not 47475546)",
                     __builtin_bswap32(magic));
    TQ_ASSIGN_OR_RETURN(gguf_.version_, Read<uint32_t>("the header"));
    if (gguf_.version_ != 0 && (gguf_.version_ & 0xFFFF) == 0) {
      return Fail(ErrorCode::kUnsupported,
                  "{}: a big-endian GGUF; only little-endian files are supported", gguf_.name_);
    }
    if (gguf_.version_ != 2 && gguf_.version_ != 3) {
      return Fail(ErrorCode::kUnsupported, "{}: GGUF version {}; supported: 2, 3", gguf_.name_,
                  gguf_.version_);
    }
    TQ_ASSIGN_OR_RETURN(num_tensors_, Read<uint64_t>("the header"));
    TQ_ASSIGN_OR_RETURN(num_entries_, Read<uint64_t>("the header"));
    if (num_entries_ > remaining() / kMinEntryBytes) {
      return Corrupt("{} metadata keys cannot fit into {} bytes", num_entries_, remaining());
    }
    if (num_tensors_ > remaining() / kMinTensorBytes) {
      return Corrupt("{} tensors cannot fit into {} bytes", num_tensors_, remaining());
    }
    return {};
  }

  Status ReadMetadata() {
    gguf_.metadata_.reserve(num_entries_);
    for (uint64_t i = 0; i < num_entries_; ++i) {
      TQ_ASSIGN_OR_RETURN(const std::string_view key, ReadString("a metadata key", kMaxKey));
      if (key.empty() || !IsPrintableUtf8(key)) {
        return Corrupt("metadata key {} is empty or not printable UTF-8: '{}'", i,
                       PrintableText(key));
      }
      TQ_ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>("a metadata type"));
      TQ_ASSIGN_OR_RETURN(GgufValue value, ReadValue(static_cast<GgufType>(type), key));
      if (!gguf_.metadata_index_.emplace(key, i).second)
        return Corrupt("metadata key '{}' is there twice", PrintableText(key));
      gguf_.metadata_.push_back({key, static_cast<GgufType>(type), std::move(value)});
    }
    return {};
  }

  template <typename Wide, typename T>
  Result<GgufValue> ReadScalar() {
    TQ_ASSIGN_OR_RETURN(const T value, Read<T>("a metadata value"));
    return GgufValue(static_cast<Wide>(value));
  }

  Result<GgufValue> ReadValue(GgufType type, std::string_view key) {
    switch (type) {
      case GgufType::kU8:
        return ReadScalar<uint64_t, uint8_t>();
      case GgufType::kU16:
        return ReadScalar<uint64_t, uint16_t>();
      case GgufType::kU32:
        return ReadScalar<uint64_t, uint32_t>();
      case GgufType::kU64:
        return ReadScalar<uint64_t, uint64_t>();
      case GgufType::kI8:
        return ReadScalar<int64_t, int8_t>();
      case GgufType::kI16:
        return ReadScalar<int64_t, int16_t>();
      case GgufType::kI32:
        return ReadScalar<int64_t, int32_t>();
      case GgufType::kI64:
        return ReadScalar<int64_t, int64_t>();
      case GgufType::kF32:
        return ReadScalar<double, float>();
      case GgufType::kF64:
        return ReadScalar<double, double>();
      case GgufType::kBool:
        return ReadScalar<bool, uint8_t>();
      case GgufType::kString: {
        TQ_ASSIGN_OR_RETURN(const std::string_view text,
                            ReadString("a metadata string", Gguf::kMaxStringBytes));
        return GgufValue(text);
      }
      case GgufType::kArray: {
        TQ_ASSIGN_OR_RETURN(GgufArray array, ReadArray(key));
        return GgufValue(std::move(array));
      }
    }
    return Corrupt("metadata key '{}' has the unknown type {}", PrintableText(key),
                   static_cast<uint32_t>(type));
  }

  Result<GgufArray> ReadArray(std::string_view key) {
    GgufArray array;
    TQ_ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>("an array's type"));
    TQ_ASSIGN_OR_RETURN(array.count, Read<uint64_t>("an array's length"));
    array.element_type = static_cast<GgufType>(type);
    if (array.element_type == GgufType::kArray) {
      return Corrupt("metadata key '{}' is an array of arrays, which no reader of GGUF takes",
                     PrintableText(key));
    }
    const bool is_string = array.element_type == GgufType::kString;
    const uint64_t element_bytes = is_string ? sizeof(uint64_t) : ScalarBytes(array.element_type);
    if (element_bytes == 0)
      return Corrupt("metadata key '{}' is an array of the unknown type {}", PrintableText(key),
                     type);
    if (array.count > remaining() / element_bytes) {
      return Corrupt("metadata key '{}' claims {} elements, the file has {} bytes left",
                     PrintableText(key), array.count, remaining());
    }
    if (array.count > Gguf::kMaxArrayElements) {
      return Corrupt("metadata key '{}' has {} elements, more than {}", PrintableText(key),
                     array.count, Gguf::kMaxArrayElements);
    }
    if (is_string) {
      array.strings.reserve(array.count);
      for (uint64_t i = 0; i < array.count; ++i) {
        TQ_ASSIGN_OR_RETURN(const std::string_view text,
                            ReadString("a string of an array", Gguf::kMaxStringBytes));
        array.strings.push_back(text);
      }
    } else {
      array.raw = bytes_.subspan(pos_, array.count * element_bytes);
      pos_ += array.raw.size();
    }
    return array;
  }

  Status ReadAlignment() {
    const GgufEntry* entry = gguf_.FindEntry("general.alignment");
    if (entry == nullptr) return {};
    if (entry->type != GgufType::kU32) {
      return Corrupt("key 'general.alignment' has type {}, expected u32",
                     GgufTypeName(entry->type));
    }
    gguf_.alignment_ = std::get<uint64_t>(entry->value);
    if (gguf_.alignment_ < 8 || gguf_.alignment_ > kMaxAlignment ||
        !std::has_single_bit(gguf_.alignment_)) {
      return Corrupt("key 'general.alignment' is {}, expected a power of two from 8 to {}",
                     gguf_.alignment_, kMaxAlignment);
    }
    return {};
  }

  Status ReadTensors() {
    if (num_tensors_ > remaining() / kMinTensorBytes) {
      return Corrupt("{} tensors cannot fit into the {} bytes after the metadata", num_tensors_,
                     remaining());
    }
    gguf_.tensors_.reserve(num_tensors_);
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      TQ_ASSIGN_OR_RETURN(GgufTensor tensor, ReadTensor(i));
      if (!gguf_.tensor_index_.emplace(tensor.name, i).second)
        return Corrupt("tensor '{}' is there twice", tensor.name);
      gguf_.tensors_.push_back(std::move(tensor));
    }
    return {};
  }

  Result<GgufTensor> ReadTensor(uint64_t index) {
    GgufTensor tensor;
    TQ_ASSIGN_OR_RETURN(tensor.name, ReadString("a tensor name", kMaxTensorName));
    if (tensor.name.empty() || !IsPrintableUtf8(tensor.name)) {
      return Corrupt("the name of tensor {} is empty or not printable UTF-8: '{}'", index,
                     PrintableText(tensor.name));
    }
    TQ_ASSIGN_OR_RETURN(const uint32_t rank, Read<uint32_t>("a tensor's rank"));
    if (rank < 1 || rank > kMaxDims) {
      return Corrupt("tensor '{}' has {} dimensions, expected 1 to {}", tensor.name, rank,
                     kMaxDims);
    }
    for (uint32_t i = 0; i < rank; ++i) {
      TQ_ASSIGN_OR_RETURN(const uint64_t dim, Read<uint64_t>("a tensor's shape"));
      tensor.shape.push_back(dim);
    }
    TQ_ASSIGN_OR_RETURN(tensor.ggml_type, Read<uint32_t>("a tensor's type"));
    TQ_ASSIGN_OR_RETURN(tensor.offset, Read<uint64_t>("a tensor's offset"));
    TQ_ASSIGN_OR_RETURN(tensor.bytes, TensorBytes(tensor));
    return tensor;
  }

  // Bytes of the data. Also bounds every dimension and the number of elements by those of the file,
  // so that no later arithmetic on a shape can overflow.
  Result<uint64_t> TensorBytes(const GgufTensor& tensor) const {
    const GgmlTypeInfo* type = FindGgmlType(tensor.ggml_type);
    if (type == nullptr)
      return Corrupt("tensor '{}' has the unknown type {}", tensor.name, tensor.ggml_type);
    if (tensor.shape[0] % type->block_size != 0) {
      return Corrupt("tensor '{}': rows of {} values do not divide into {} blocks of {}",
                     tensor.name, tensor.shape[0], type->name, type->block_size);
    }
    uint64_t blocks = tensor.shape[0] / type->block_size;
    bool fits = blocks <= bytes_.size() / type->type_size;
    for (size_t i = 1; i < tensor.shape.size() && fits; ++i) {
      if (tensor.shape[i] == 0 || blocks == 0) break;
      fits = tensor.shape[i] <= bytes_.size() / type->type_size / blocks;
      if (fits) blocks *= tensor.shape[i];
    }
    if (std::ranges::count(tensor.shape, 0u) != 0) {
      return Corrupt("tensor '{}' of shape {} has no elements", tensor.name,
                     ShapeText(tensor.shape));
    }
    if (!fits) {
      return Corrupt("tensor '{}' of shape {} and type {} is larger than the file of {} bytes",
                     tensor.name, ShapeText(tensor.shape), type->name, bytes_.size());
    }
    return blocks * type->type_size;
  }

  // ggml demands that each tensor starts where the one before it ended, padded to the alignment: so
  // they are aligned, in the order of the list, and cannot overlap.
  Status PlaceTensors() {
    if (num_tensors_ == 0) return {};
    const auto pad = [&](uint64_t n) {
      return (n + gguf_.alignment_ - 1) & ~(gguf_.alignment_ - 1);
    };
    const uint64_t data = pad(pos_);
    uint64_t expected = 0;
    for (GgufTensor& tensor : gguf_.tensors_) {
      if (tensor.offset != expected) {
        return Corrupt(
            "tensor '{}' is at offset {}, expected {} (tensors lie one after another, aligned to "
            "{})",
            tensor.name, tensor.offset, expected, gguf_.alignment_);
      }
      const uint64_t start = data + tensor.offset;
      if (start > bytes_.size() || tensor.bytes > bytes_.size() - start) {
        return Corrupt("tensor '{}' ends at byte {}, the file has {}", tensor.name,
                       start + tensor.bytes, bytes_.size());
      }
      expected += pad(tensor.bytes);
      tensor.offset = start;
    }
    return {};
  }

  std::span<const uint8_t> bytes_;
  uint64_t pos_ = 0;
  uint64_t num_tensors_ = 0, num_entries_ = 0;
  Gguf gguf_;
};

Result<Gguf> Gguf::Parse(std::span<const uint8_t> bytes, std::string_view name) {
  return GgufParser(bytes, name).Run();
}

const GgufTensor* Gguf::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

const GgufEntry* Gguf::FindEntry(std::string_view key) const {
  const auto it = metadata_index_.find(key);
  return it == metadata_index_.end() ? nullptr : &metadata_[it->second];
}

const GgufValue* Gguf::Find(std::string_view key) const {
  const GgufEntry* entry = FindEntry(key);
  return entry == nullptr ? nullptr : &entry->value;
}

Result<uint64_t> Gguf::GetUint(std::string_view key, uint64_t min, uint64_t max,
                               std::optional<uint64_t> fallback) const {
  const GgufEntry* entry = FindEntry(key);
  if (entry == nullptr) {
    if (fallback) return *fallback;
    return Fail(ErrorCode::kNotFound, "{}: key '{}' is missing", name_, key);
  }
  if (const auto* value = std::get_if<uint64_t>(&entry->value)) {
    if (*value >= min && *value <= max) return *value;
    return Fail(ErrorCode::kCorrupt, "{}: key '{}' is {}, expected {} to {}", name_, key, *value,
                min, max);
  }
  if (const auto* value = std::get_if<int64_t>(&entry->value)) {
    if (*value >= 0 && static_cast<uint64_t>(*value) >= min &&
        static_cast<uint64_t>(*value) <= max) {
      return static_cast<uint64_t>(*value);
    }
    return Fail(ErrorCode::kCorrupt, "{}: key '{}' is {}, expected {} to {}", name_, key, *value,
                min, max);
  }
  return Fail(ErrorCode::kCorrupt, "{}: key '{}' has type {}, expected an integer", name_, key,
              GgufTypeName(entry->type));
}

Result<double> Gguf::GetFloat(std::string_view key, double min, double max,
                              std::optional<double> fallback) const {
  const GgufEntry* entry = FindEntry(key);
  if (entry == nullptr) {
    if (fallback) return *fallback;
    return Fail(ErrorCode::kNotFound, "{}: key '{}' is missing", name_, key);
  }
  const auto* value = std::get_if<double>(&entry->value);
  if (value == nullptr) {
    return Fail(ErrorCode::kCorrupt, "{}: key '{}' has type {}, expected a float", name_, key,
                GgufTypeName(entry->type));
  }
  if (!(*value >= min && *value <= max)) {
    return Fail(ErrorCode::kCorrupt, "{}: key '{}' is {}, expected {} to {}", name_, key, *value,
                min, max);
  }
  return *value;
}

Result<std::string_view> Gguf::GetString(std::string_view key,
                                         std::optional<std::string_view> fallback) const {
  const GgufEntry* entry = FindEntry(key);
  if (entry == nullptr) {
    if (fallback) return *fallback;
    return Fail(ErrorCode::kNotFound, "{}: key '{}' is missing", name_, key);
  }
  if (const auto* value = std::get_if<std::string_view>(&entry->value)) return *value;
  return Fail(ErrorCode::kCorrupt, "{}: key '{}' has type {}, expected a string", name_, key,
              GgufTypeName(entry->type));
}

Result<bool> Gguf::GetBool(std::string_view key, std::optional<bool> fallback) const {
  const GgufEntry* entry = FindEntry(key);
  if (entry == nullptr) {
    if (fallback) return *fallback;
    return Fail(ErrorCode::kNotFound, "{}: key '{}' is missing", name_, key);
  }
  if (const auto* value = std::get_if<bool>(&entry->value)) return *value;
  return Fail(ErrorCode::kCorrupt, "{}: key '{}' has type {}, expected a bool", name_, key,
              GgufTypeName(entry->type));
}

Result<const GgufArray*> Gguf::GetArray(std::string_view key) const {
  const GgufEntry* entry = FindEntry(key);
  if (entry == nullptr) return nullptr;
  if (const auto* value = std::get_if<GgufArray>(&entry->value)) return value;
  return Fail(ErrorCode::kCorrupt, "{}: key '{}' has type {}, expected an array", name_, key,
              GgufTypeName(entry->type));
}

}  // namespace turboquant
