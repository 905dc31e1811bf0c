// JSON from a file that nobody trusts: what a parser lets pass in silence is refused, and values
// can be shown in a message.
#ifndef TURBOQUANT_BASE_JSON_TEXT_H_
#define TURBOQUANT_BASE_JSON_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace turboquant {

// kInvalidArgument unless `text` is JSON in which no object has a key twice (a parser keeps the
// last in silence) and nothing lies deeper than 32 levels (what walks a document uses the stack).
// NaN, infinities and numbers beyond a double are no JSON. path: for messages.
[[nodiscard]] Status CheckJson(std::string_view text, const std::string& path);

// A value as a message can carry it: one line, not long; the type's name for lists and objects.
template <typename Json>
std::string Shown(const Json& value) {
  constexpr size_t kMaxShown = 60;
  if (value.is_structured()) return value.type_name();
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_JSON_TEXT_H_
