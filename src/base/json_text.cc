#include "base/json_text.h"

#include <set>
#include <vector>

#include "base/printable_text.h"

namespace turboquant {
namespace {

constexpr size_t kMaxDepth = 32;

// Walks the text without building anything; false from a member ends the walk.
class Checker : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    problem_ = fmt::format("the key '{}' stands twice in one object", PrintableText(name));
    return false;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();  // "[json.exception.parse_error.101] parse error at ..."
    if (const size_t end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    problem_ = "no JSON: " + PrintableText(what, 200);
    return false;
  }
  const std::string& problem() const { return problem_; }

 private:
  bool Open() {
    keys_.emplace_back();
    if (keys_.size() <= kMaxDepth) return true;
    problem_ = fmt::format("lists and objects lie deeper than {} levels", kMaxDepth);
    return false;
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // of the objects that are open; empty for a list
  std::string problem_;
};

}  // namespace

Status CheckJson(std::string_view text, const std::string& path) {
  Checker checker;
  if (nlohmann::json::sax_parse(text, &checker)) return {};
  return Fail(ErrorCode::kInvalidArgument, "{}: {}", path, checker.problem());
}

}  // namespace turboquant
