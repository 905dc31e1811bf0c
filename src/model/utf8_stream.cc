#include "model/tokenizer.h"

namespace turboquant {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Sequence {
  size_t bytes;  // of the longest prefix that a valid character may begin with, at least 1
  enum class Kind { kComplete, kIncomplete, kInvalid } kind;
};

// Table 3-7 of the Unicode standard: well-formed byte sequences.
Sequence Next(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, Sequence::Kind::kComplete};
  const size_t size = lead >= 0xC2 && lead <= 0xDF   ? 2
                      : lead >= 0xE0 && lead <= 0xEF ? 3
                      : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                     : 0;
  if (size == 0) return {1, Sequence::Kind::kInvalid};
  for (size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {i, Sequence::Kind::kIncomplete};
    unsigned char low = 0x80, high = 0xBF;
    if (i == 1 && lead == 0xE0) low = 0xA0;
    if (i == 1 && lead == 0xED) high = 0x9F;
    if (i == 1 && lead == 0xF0) low = 0x90;
    if (i == 1 && lead == 0xF4) high = 0x8F;
    if (byte(i) < low || byte(i) > high) return {i, Sequence::Kind::kInvalid};
  }
  return {size, Sequence::Kind::kComplete};
}

}  // namespace

std::string Utf8Stream::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string_view rest = pending_;
  std::string text;
  while (!rest.empty()) {
    const Sequence next = Next(rest);
    if (next.kind == Sequence::Kind::kIncomplete) break;
    text += next.kind == Sequence::Kind::kComplete ? rest.substr(0, next.bytes) : kReplacement;
    rest.remove_prefix(next.bytes);
  }
  pending_ = std::string(rest);
  return text;
}

std::string Utf8Stream::Flush() {
  const bool incomplete = !pending_.empty();
  pending_.clear();
  return incomplete ? std::string(kReplacement) : std::string();
}

}  // namespace turboquant
