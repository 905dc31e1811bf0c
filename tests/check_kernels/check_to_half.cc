#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "base/half.h"
#include "check.h"

namespace turboquant::check {
namespace {

constexpr size_t kMaxCount = 4096;

uint16_t Expected(float x) {
  if (std::isnan(x)) return 0;
  const uint16_t half = FloatToHalf(x);
  return (half & 0x7FFF) == 0x7C00 ? static_cast<uint16_t>(half - 1) : half;  // infinity to 65504
}

// Halves, the middles between neighbours and their neighbours in float; then any bit pattern.
float Value(bool any_bits, Rng& rng) {
  if (any_bits) return std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
  const auto half = static_cast<uint16_t>(rng.Next());
  const float low = HalfToFloat(half);
  const float high = HalfToFloat(static_cast<uint16_t>(half + 1));
  const float middle = low + (high - low) / 2;
  return std::array{low, middle, std::nextafter(middle, low),
                    std::nextafter(middle, high)}[static_cast<size_t>(rng.Below(4))];
}

}  // namespace

void CheckToHalf(RowCheck& check) {
  GuardedBuffer in_buffer(kMaxCount * 4 + 64), out_buffer(kMaxCount * 2 + 64);
  for (size_t i = 0; i < 400; ++i) {
    const size_t n = i < 40 ? i : i < 200 ? i * 7 % 300 : kMaxCount;
    if (!check.Begin(fmt::format("n {}", n))) continue;
    Rng rng(check.case_seed());
    const auto slack = static_cast<size_t>(rng.Below(2) * rng.Below(16));
    float* in = in_buffer.PlaceArray<float>(n, slack);
    auto* out = out_buffer.PlaceArray<uint16_t>(n, slack);
    const bool any_bits = rng.Below(2) == 0;
    for (size_t j = 0; j < n; ++j) in[j] = Value(any_bits, rng);
    check.row().to_half({.in = in, .out = out, .n = n});
    if (!check.ExpectGuards(out_buffer, "out")) return;
    for (size_t j = 0; j < n; ++j) {
      if (!check.ExpectNear(out[j], Expected(in[j]), 0,
                            fmt::format("value {} ({:.9g})", j, static_cast<double>(in[j]))))
        return;
    }
  }
}

}  // namespace turboquant::check
