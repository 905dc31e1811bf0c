#include "engine/output_text.h"

#include <algorithm>
#include <utility>

namespace turboquant {
namespace {

// Length of the longest end of `text` that is a beginning of `stop`, all of `stop` excluded.
size_t Overlap(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (stop.starts_with(text.substr(text.size() - length))) return length;
  }
  return 0;
}

}  // namespace

std::string OutputText::Push(std::string_view bytes) {
  if (stopped_) return "";
  return Release(utf8_.Push(bytes));
}

std::string OutputText::Flush() {
  if (stopped_) return "";
  std::string text = Release(utf8_.Flush());
  return stopped_ ? text : text + std::exchange(held_, "");
}

std::string OutputText::Release(std::string text) {
  held_ += text;
  size_t first = std::string::npos;
  size_t hold = 0;
  for (const std::string& stop : stop_) {
    first = std::min(first, held_.find(stop));
    hold = std::max(hold, Overlap(held_, stop));
  }
  stopped_ = first != std::string::npos;
  const std::string out = held_.substr(0, stopped_ ? first : held_.size() - hold);
  held_.erase(0, stopped_ ? held_.size() : out.size());
  return out;
}

}  // namespace turboquant
