#include "base/text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>

namespace turboquant {
namespace {

// Value of a unit suffix, or 0 if there is no such unit.
double UnitOf(std::string_view suffix) {
  if (suffix.ends_with('B')) suffix.remove_suffix(1);
  if (suffix.empty()) return 1;
  const bool binary = suffix.size() == 2 && suffix[1] == 'i';
  if (suffix.size() != 1 && !binary) return 0;
  const double base = binary ? 1024 : 1000;
  switch (suffix[0]) {
    case 'k':
    case 'K':
      return base;
    case 'M':
      return base * base;
    case 'G':
      return base * base * base;
    case 'T':
      return base * base * base * base;
    default:
      return 0;
  }
}

}  // namespace

Result<uint64_t> ParseSize(std::string_view text) {
  const auto bad = [&] {
    return Fail(ErrorCode::kInvalidArgument,
                "'{}' is not a size: want a number with k, M, G, T or Ki, Mi, Gi, Ti, as in 512Mi",
                text);
  };
  size_t digits = 0;
  while (digits < text.size() &&
         ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.')) {
    ++digits;
  }
  const std::string_view number = text.substr(0, digits);
  const double unit = UnitOf(text.substr(digits));
  if (digits == 0 || unit == 0) return bad();
  if (number.find('.') == std::string_view::npos) {  // whole numbers exactly
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc{} || end != number.data() + number.size()) return bad();
    if (value > static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(unit)) return bad();
    return value * static_cast<uint64_t>(unit);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{} || end != number.data() + number.size()) return bad();
  const double scaled = std::floor(value * unit);
  if (!(scaled < 0x1p63)) return bad();
  return static_cast<uint64_t>(scaled);
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::array<std::string_view, 7> kUnits = {"B",   "KiB", "MiB", "GiB",
                                                             "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

}  // namespace turboquant
