// Encoding of the narrow formats: codes equal codec/tile.h bit for bit
// (kernels/encode_narrow_tiles.h).
#include "kernels/avx2/kernels.h"
#include "kernels/avx2/narrow_levels.h"
#include "kernels/encode_narrow_tiles.h"

namespace turboquant::avx2 {
namespace {

// For kernels/encode_narrow_tiles.h.
struct Rows {
  using Plane = uint32_t[kLanes];

  // Codes of one row to bytes; returns the number of outermost ones.
  template <KvCacheDtype kDtype>
  static int CodeRow(const float* row, int n, float inverse, uint8_t* bytes) {
    constexpr int kHalf = NarrowFormatOf(kDtype).half;
    const __m256 factor = _mm256_set1_ps(inverse);
    __m256i ends = _mm256_setzero_si256();
    for (int c = 0; c < n; c += 8) {
      __m256 p = _mm256_mul_ps(_mm256_loadu_ps(row + c), factor);
      p = _mm256_and_ps(p, _mm256_cmp_ps(p, p, _CMP_ORD_Q));
      const __m256i index = NarrowLevels<kDtype>::Index(Abs(p));
      const __m256i negative =
          _mm256_castps_si256(_mm256_cmp_ps(p, _mm256_setzero_ps(), _CMP_LT_OQ));
      // half + index, or half - 1 - index = half + ~index
      const __m256i code =
          _mm256_add_epi32(_mm256_set1_epi32(kHalf), _mm256_xor_si256(index, negative));
      ends = _mm256_sub_epi32(ends, _mm256_cmpeq_epi32(index, _mm256_set1_epi32(kHalf - 1)));
      const __m128i words =
          _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(bytes + c), _mm_packus_epi16(words, words));
    }
    return HorizontalSum(ends);
  }

  static void KeyPlane(const uint8_t (*tokens)[kMaxHeadDim], int channel, Plane* plane) {
    for (int t = 0; t < kLanes; ++t) __builtin_memcpy(&(*plane)[t], &tokens[t][channel], 4);
  }
  static void ValuePlane(const uint8_t (*tokens)[kMaxHeadDim], int channel, Plane* plane) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const int c = channel + lane;
      (*plane)[lane] = tokens[0][c] | static_cast<uint32_t>(tokens[1][c]) << 8 |
                       static_cast<uint32_t>(tokens[2][c]) << 16 |
                       static_cast<uint32_t>(tokens[3][c]) << 24;
    }
  }

  // Planes of a unit to its lines.
  template <KvCacheDtype kDtype>
  static void PackUnit(const Plane* planes, uint8_t* unit) {
    constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
    constexpr int kPerLine = 8 / kFormat.low_bits;
    constexpr uint32_t kLowMask = 0x01010101u * ((1u << kFormat.low_bits) - 1);
    constexpr uint32_t kHighMask = 0x01010101u * ((1u << kFormat.high_bits) - 1);
    uint32_t lines[kFormat.num_lines][kLanes] = {};
    for (int p = 0; p < kFormat.num_planes; ++p) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const uint32_t word = planes[p][lane];
        lines[p / kPerLine][lane] |= (word & kLowMask) << kFormat.low_bits * (p % kPerLine);
        if constexpr (kFormat.high_bits > 0) {
          lines[kFormat.num_low][lane] |= (word >> kFormat.low_bits & kHighMask)
                                          << kFormat.high_bits * p;
        }
      }
    }
    __builtin_memcpy(unit, lines, sizeof(lines));
  }

  static float FromHalf(uint16_t h) { return FromF16(h); }
};

}  // namespace

void EncodeNarrow(const EncodeArgs& args) { NarrowTileEncoder<Rows>::Encode(args); }

}  // namespace turboquant::avx2
