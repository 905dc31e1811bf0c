#include "planner/hf_fields.h"

#include "base/json_text.h"
#include "base/printable_text.h"

namespace turboquant {

bool HfFields::Missing(const char* key) const {
  const auto it = fields_.find(key);
  return it == fields_.end() || it->is_null();
}

Result<int> HfFields::Number(const nlohmann::json& value, const char* key, int min, int max) const {
  const bool fits =
      value.is_number_unsigned()
          ? value.get<uint64_t>() <= static_cast<uint64_t>(max)
          : value.is_number_integer() && value.get<int64_t>() <= static_cast<int64_t>(max);
  if (fits && value.get<int64_t>() >= static_cast<int64_t>(min))
    return static_cast<int>(value.get<int64_t>());
  return Fail(ErrorCode::kCorrupt, "{}: '{}' is {}, expected a whole number from {} to {}", name_,
              key, Shown(value), min, max);
}

Result<int> HfFields::Int(const char* key, int min, int max, std::optional<int> fallback) const {
  if (!Missing(key)) return Number(fields_.at(key), key, min, max);
  if (fallback) return *fallback;
  return Fail(ErrorCode::kCorrupt, "{}: '{}' is missing, expected a whole number from {} to {}",
              name_, key, min, max);
}

Result<int> HfFields::IntOf(const char* key, const char* other, int min, int max) const {
  return Int(Missing(key) && !Missing(other) ? other : key, min, max);
}

Result<bool> HfFields::Bool(const char* key, bool fallback) const {
  if (Missing(key)) return fallback;
  const nlohmann::json& value = fields_.at(key);
  if (value.is_boolean()) return value.get<bool>();
  return Fail(ErrorCode::kCorrupt, "{}: '{}' is {}, expected true or false", name_, key,
              Shown(value));
}

Result<std::string> HfFields::String(const char* key, std::string_view fallback) const {
  if (Missing(key)) return std::string(fallback);
  const nlohmann::json& value = fields_.at(key);
  if (value.is_string()) return PrintableText(value.get_ref<const std::string&>());
  return Fail(ErrorCode::kCorrupt, "{}: '{}' is {}, expected text", name_, key, Shown(value));
}

Result<const nlohmann::json*> HfFields::Array(const char* key, size_t size) const {
  const auto it = fields_.find(key);
  if (it != fields_.end() && it->is_array() && it->size() == size) return &*it;
  const std::string found = it == fields_.end() ? "missing"
                            : it->is_array()    ? fmt::format("a list of {}", it->size())
                                                : Shown(*it);
  return Fail(ErrorCode::kCorrupt,
              "{}: '{}' is {}, expected a list with one entry for each of {} layers", name_, key,
              found, size);
}

Result<std::vector<int>> HfFields::Ints(const char* key, size_t size, int min, int max) const {
  TQ_ASSIGN_OR_RETURN(const nlohmann::json* array, Array(key, size));
  std::vector<int> values;
  for (const nlohmann::json& value : *array) {
    TQ_ASSIGN_OR_RETURN(const int number, Number(value, key, min, max));
    values.push_back(number);
  }
  return values;
}

Result<std::vector<std::string>> HfFields::Strings(const char* key, size_t size) const {
  TQ_ASSIGN_OR_RETURN(const nlohmann::json* array, Array(key, size));
  std::vector<std::string> values;
  for (const nlohmann::json& value : *array) {
    if (!value.is_string()) {
      return Fail(ErrorCode::kCorrupt, "{}: '{}' holds {}, expected text", name_, key,
                  Shown(value));
    }
    values.push_back(PrintableText(value.get_ref<const std::string&>()));
  }
  return values;
}

}  // namespace turboquant
