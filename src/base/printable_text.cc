#include "base/printable_text.h"

#include <fmt/format.h>

#include <cstdint>

namespace turboquant {
namespace {

// Length of the valid UTF-8 sequence at the start of `text` (1..4), or 0: no overlong forms,
// surrogates or > U+10FFFF.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0u; };
  const uint32_t b0 = byte(0);
  if (b0 < 0x80) return 1;
  const size_t length = b0 >= 0xC2 && b0 <= 0xDF   ? 2
                        : (b0 & 0xF0) == 0xE0      ? 3
                        : b0 >= 0xF0 && b0 <= 0xF4 ? 4
                                                   : 0;
  if (length == 0) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint32_t b1 = byte(1);
  if ((b0 == 0xE0 && b1 < 0xA0) || (b0 == 0xED && b1 > 0x9F) || (b0 == 0xF0 && b1 < 0x90) ||
      (b0 == 0xF4 && b1 > 0x8F)) {
    return 0;
  }
  return length;
}

bool IsControl(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }

// The first `n` of `text` cut so that no character is split.
std::string_view TakeWhole(std::string_view text, size_t n) {
  if (n >= text.size()) return text;
  while (n > 0 && (static_cast<uint8_t>(text[n]) & 0xC0) == 0x80) --n;
  return text.substr(0, n);
}

}  // namespace

bool IsPrintableUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0 || IsControl(text[0])) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string PrintableText(std::string_view text, size_t max_bytes) {
  const std::string_view kept = TakeWhole(text, max_bytes);
  std::string result;
  for (size_t i = 0; i < kept.size();) {
    const size_t length = Utf8Length(kept.substr(i));
    if (length == 0 || IsControl(kept[i])) {
      result += fmt::format("\\x{:02x}", static_cast<uint8_t>(kept[i]));
      ++i;
    } else {
      result += kept.substr(i, length);
      i += length;
    }
  }
  if (kept.size() < text.size()) result += "...";
  return result;
}

}  // namespace turboquant
