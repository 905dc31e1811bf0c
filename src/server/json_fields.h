// Reads the fields of one JSON object that nobody trusts; remembers the first that is wrong.
//
//   JsonFields fields(document);
//   const double temperature = fields.Number("temperature", 0, 2, 1);
//   if (fields.error()) return std::unexpected(*fields.error());
//
// A field that is missing or null has its default.
#ifndef TURBOQUANT_SERVER_JSON_FIELDS_H_
#define TURBOQUANT_SERVER_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"

namespace turboquant::server {

class JsonFields {
 public:
  // `object` must be an object and outlive this. prefix: of names in messages ("stream_options.").
  explicit JsonFields(const nlohmann::json& object, std::string prefix = {})
      : object_(object), prefix_(std::move(prefix)) {}

  // The value as it is; null where the field is missing.
  const nlohmann::json& Value(const std::string& name) const;
  bool Has(const std::string& name) const { return !Value(name).is_null(); }

  double Number(const std::string& name, double min, double max, double otherwise);
  int64_t Integer(const std::string& name, int64_t min, int64_t max, int64_t otherwise);
  bool Boolean(const std::string& name, bool otherwise);
  std::string Text(const std::string& name, std::string otherwise);
  // One text or a list of at most `max_texts`, none of them empty.
  std::vector<std::string> Texts(const std::string& name, size_t max_texts);

  void Refuse(const std::string& name, const std::string& message);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  std::optional<ApiError> error_;
};

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_JSON_FIELDS_H_
