// int6, int5, int4, int3 and int2: one of a few fixed levels per value, chosen for values that a
// rotation has made near Gaussian (docs/formats/narrow.md).
//
//   x = scale * level      level: an integer of -63..63, symmetric about 0
//   code n of 2^bits:      half = 2^bits / 2; level = magnitudes[n - half] for n >= half,
//                          else -magnitudes[half - 1 - n]: codes rise with their levels
//   quantizing p = x / scale: the level whose magnitude is nearest to |p| (between two the
//   smaller),
//                          with the sign of p; -0 and 0 are positive, NaN is 0
//
// int2 to int4 have the levels with the least squared error of Gaussian vectors of 64 and 128
// values under the best scale of each (Lloyd's iteration with the scale search of scale_fit.h
// inside), rounded to integers of at most 31, so that two products of 8 bits fit into 16. At 5 bits
// levels rounded like that gain 4 % over equally spaced ones, at 6 bits nothing: int5 and int6 are
// equally spaced.
//
// Layout. A line has 16 lanes of 4 bytes as always; a *plane* is what one such lane holds of 8-bit
// codes: 4 codes along the axis that the product sums over. Codes are cut in two parts and planes
// are packed into *units* of lines:
//
//   bits  low part, lines of a unit     high part          planes of a unit
//   6     4 bits, 2 lines of 2 planes   2 bits, 1 line     4
//   5     4 bits, 4 lines of 2 planes   1 bit, 1 line      8
//   4     4 bits, 1 line of 2 planes    -                  2
//   3     2 bits, 2 lines of 4 planes   1 bit, 1 line      8
//   2     2 bits, 1 line of 4 planes    -                  4
//
// Plane p's low part lies in line p / (8 / low bits), shifted by low bits * (p % (8 / low bits));
// its high part in the unit's last line, shifted by high bits * p.
#ifndef TURBOQUANT_CODEC_NARROW_H_
#define TURBOQUANT_CODEC_NARROW_H_

#include <array>
#include <cstdint>

#include "codec/kv_cache_dtype.h"

namespace turboquant {

struct NarrowFormat {
  int bits;
  int half;                            // number of magnitudes
  std::array<int8_t, 32> magnitudes;   // rising; `half` of them
  float levels_per_rms;                // scale of a typical vector = its rms / this
  int low_bits, high_bits;             // parts of a code
  int num_planes, num_lines, num_low;  // of a unit; lines with low parts

  constexpr int Level(int code) const {
    const int index = code >= half ? code - half : half - 1 - code;
    const int magnitude = magnitudes[static_cast<size_t>(index)];
    return code >= half ? magnitude : -magnitude;
  }
  // Magnitudes k and k + 1 meet here.
  constexpr float Threshold(int k) const {
    return 0.5f * static_cast<float>(magnitudes[static_cast<size_t>(k)] +
                                     magnitudes[static_cast<size_t>(k) + 1]);
  }
  constexpr int CodesPerLane() const { return 4 * num_planes; }  // of a unit
};

// Only for formats that IsNarrow.
constexpr NarrowFormat NarrowFormatOf(KvCacheDtype dtype) {
  const auto make = [](int bits, std::array<int8_t, 32> magnitudes, float levels_per_rms) {
    const int low = bits >= 4 ? 4 : 2, high = bits - low;
    const int planes = high == 1 ? 8 : (high == 2 ? 4 : 8 / low);
    const int num_low = planes * low / 8;
    return NarrowFormat{.bits = bits,
                        .half = 1 << (bits - 1),
                        .magnitudes = magnitudes,
                        .levels_per_rms = levels_per_rms,
                        .low_bits = low,
                        .high_bits = high,
                        .num_planes = planes,
                        .num_lines = num_low + (high > 0 ? 1 : 0),
                        .num_low = num_low};
  };
  const auto odd = [](int count) {
    std::array<int8_t, 32> magnitudes{};
    for (int i = 0; i < count; ++i) {
      magnitudes[static_cast<size_t>(i)] = static_cast<int8_t>(2 * i + 1);
    }
    return magnitudes;
  };
  if (dtype == KvCacheDtype::kInt2) return make(2, {9, 31}, 18.8f);
  if (dtype == KvCacheDtype::kInt3) return make(3, {3, 10, 19, 31}, 14.1f);
  if (dtype == KvCacheDtype::kInt4) return make(4, {2, 5, 8, 11, 15, 19, 24, 31}, 12.0f);
  if (dtype == KvCacheDtype::kInt5) return make(5, odd(16), 11.6f);
  return make(6, odd(32), 23.4f);
}

// Narrow codes come in whole units: of channels of K, of tokens of V. True for other formats.
constexpr bool HasWholeUnits(KvCacheDtype dtype, int length) {
  return !IsNarrow(dtype) || length % NarrowFormatOf(dtype).CodesPerLane() == 0;
}

// Code of one value under 1 / scale.
int QuantizeNarrow(const NarrowFormat& format, float x, float inv_scale);
// Index of the magnitude that stands for |p|.
int NearestMagnitude(const NarrowFormat& format, float p);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_NARROW_H_
