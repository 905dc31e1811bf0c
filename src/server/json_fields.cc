#include "server/json_fields.h"

#include <fmt/format.h>

#include <utility>

#include "base/json_text.h"

namespace turboquant::server {

using nlohmann::json;

const json& JsonFields::Value(const std::string& name) const {
  static const json kNull;
  const auto it = object_.find(name);
  return it == object_.end() ? kNull : *it;
}

void JsonFields::Refuse(const std::string& name, const std::string& message) {
  if (error_) return;
  error_ = InvalidField(prefix_ + name, fmt::format("{}{}: {}", prefix_, name, message));
}

double JsonFields::Number(const std::string& name, double min, double max, double otherwise) {
  const json& value = Value(name);
  if (value.is_null()) return otherwise;
  // NaN is no JSON, and numbers beyond a double have been refused.
  if (value.is_number() && value.get<double>() >= min && value.get<double>() <= max) {
    return value.get<double>();
  }
  Refuse(name, fmt::format("{} is no number from {} to {}", Shown(value), min, max));
  return otherwise;
}

int64_t JsonFields::Integer(const std::string& name, int64_t min, int64_t max, int64_t otherwise) {
  const json& value = Value(name);
  if (value.is_null()) return otherwise;
  const bool in_range =
      value.is_number_unsigned()
          ? std::cmp_less_equal(value.get<uint64_t>(), max) &&
                std::cmp_greater_equal(value.get<uint64_t>(), min)
          : value.is_number_integer() && value.get<int64_t>() >= min && value.get<int64_t>() <= max;
  if (in_range) return value.get<int64_t>();
  Refuse(name, fmt::format("{} is no whole number from {} to {}", Shown(value), min, max));
  return otherwise;
}

bool JsonFields::Boolean(const std::string& name, bool otherwise) {
  const json& value = Value(name);
  if (value.is_null()) return otherwise;
  if (value.is_boolean()) return value.get<bool>();
  Refuse(name, fmt::format("{} is neither true nor false", Shown(value)));
  return otherwise;
}

std::string JsonFields::Text(const std::string& name, std::string otherwise) {
  const json& value = Value(name);
  if (value.is_null()) return otherwise;
  if (value.is_string()) return value.get<std::string>();
  Refuse(name, fmt::format("{} is no text", Shown(value)));
  return otherwise;
}

std::vector<std::string> JsonFields::Texts(const std::string& name, size_t max_texts) {
  const json& value = Value(name);
  if (value.is_null()) return {};
  const json list = value.is_array() ? value : json::array({value});
  std::vector<std::string> texts;
  for (const json& item : list) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty() ||
        texts.size() == max_texts) {
      Refuse(name, fmt::format("want a text or a list of at most {} texts, none empty", max_texts));
      return {};
    }
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

}  // namespace turboquant::server
