// How the AVX-512 kernels read lines and prepared rows. Everything here has internal linkage: each
// file of this folder has its own copy.
//
// A line has 16 lanes of 4 bytes: tokens of K, channels of V. A product multiplies the codes of a
// lane with as many consecutive numbers of a row (channels of q, tokens of p) and sums over them,
// so QK and PV share all of this. "Lane" is a lane of the line below, "row" a row of q or p.
#ifndef TURBOQUANT_KERNELS_AVX512_LINES_H_
#define TURBOQUANT_KERNELS_AVX512_LINES_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernel_table.h"

#define TURBOQUANT_INLINE inline __attribute__((always_inline))
#define TURBOQUANT_INLINE_LAMBDA __attribute__((always_inline))

namespace turboquant::avx512 {
namespace {

constexpr int kLanes = 16;
constexpr int kLineBytes = 64;

// PreparedQBytes by another name: a call of the shared inline function could be compiled out of
// line here, as the AVX-512 copy that the linker keeps for everyone.
constexpr size_t PreparedRowBytes(int head_dim, int group_size) {
  return (4 * static_cast<size_t>(head_dim) + 4 * static_cast<size_t>(head_dim / group_size) +
          127) /
         64 * 64;
}
static_assert(PreparedRowBytes(128, 32) == PreparedQBytes(128, 32));
static_assert(PreparedRowBytes(80, 80) == PreparedQBytes(80, 80));
static_assert(PreparedRowBytes(512, 16) == PreparedQBytes(512, 16));

TURBOQUANT_INLINE int32_t LoadI32(const void* p) {
  int32_t value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

TURBOQUANT_INLINE float LoadF32(const void* p) {
  float value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

// 16 f16 widened.
TURBOQUANT_INLINE __m512 LoadHalfs(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

TURBOQUANT_INLINE void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

// The sums are written out, so that every compiler adds in the same order.
TURBOQUANT_INLINE float Sum(__m512 x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

TURBOQUANT_INLINE int32_t Sum(__m512i x) {
  const __m256i eight =
      _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  const __m128i four =
      _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xB1)));
}

TURBOQUANT_INLINE float Max(__m512 x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Integer formats: kLines lines, one after the other, hold kPlanes planes of 4 codes a lane. What
// is summed up is worth kMult times itself. narrow.h has more of them.
//
// 8-bit lines: one plane. 4-bit lines: two, the codes 0..15 as they are.
struct Lines8 {
  static constexpr int kPlanes = 1, kLines = 1, kMult = 1;
  template <int kPlane>
  static TURBOQUANT_INLINE __m512i Plane(const uint8_t* line) {
    return _mm512_loadu_si512(line);
  }
};
struct Lines4 {
  static constexpr int kPlanes = 2, kLines = 1, kMult = 1;
  template <int kPlane>
  static TURBOQUANT_INLINE __m512i Plane(const uint8_t* line) {
    __m512i bytes = _mm512_loadu_si512(line);
    if constexpr (kPlane == 1) bytes = _mm512_srli_epi16(bytes, 4);
    return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
  }
};

// body<0>(), body<1>(), .. body<kCount - 1>(): numbers of planes are known to the compiler.
template <int kCount, int kFirst = 0, typename Body>
TURBOQUANT_INLINE void Unrolled(const Body& body) {
  if constexpr (kFirst < kCount) {
    body.template operator()<kFirst>();
    Unrolled<kCount, kFirst + 1>(body);
  }
}

template <int kMult>
TURBOQUANT_INLINE __m512i Times(__m512i x) {
  static_assert(kMult == 1 || kMult == 2);
  return kMult == 1 ? x : _mm512_slli_epi32(x, 1);
}

// Float formats. A line becomes kSteps x kParts vectors of floats. Vector [step][part] is
// multiplied with RowValues(row, step) and summed into accumulator `part`; Merge makes the 16 lane
// sums of the accumulators.
//
// Where kParts is 2, widening 16-bit codes leaves the pair of a lane side by side: part 0 holds
// lanes 0-7, part 1 lanes 8-15, and the two halves of each pair are added at the end.
TURBOQUANT_INLINE __m512 Pair(const float* row) {
  double pair;
  std::memcpy(&pair, row, sizeof(pair));
  return _mm512_castpd_ps(_mm512_set1_pd(pair));
}

TURBOQUANT_INLINE __m512 MergePairs(__m512 low, __m512 high) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return _mm512_add_ps(_mm512_permutex2var_ps(low, even, high),
                       _mm512_permutex2var_ps(low, odd, high));
}

TURBOQUANT_INLINE void WidenHalfs(__m512i halfs, __m512* parts) {
  parts[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(halfs));
  parts[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halfs, 1));
}

struct LinesF32 {
  static constexpr int kCodes = 1;  // per lane
  static constexpr int kSteps = 1, kParts = 1;
  static constexpr float kFactor = 1.0f;  // value = kFactor x what Load gives
  static TURBOQUANT_INLINE void Load(const uint8_t* line, __m512 (&x)[kSteps][kParts]) {
    x[0][0] = _mm512_loadu_ps(reinterpret_cast<const float*>(line));
  }
  static TURBOQUANT_INLINE __m512 RowValues(const float* row, int) { return _mm512_set1_ps(*row); }
  static TURBOQUANT_INLINE __m512 Merge(const __m512 (&acc)[kParts]) { return acc[0]; }
};

struct LinesBf16 {
  static constexpr int kCodes = 2;
  static constexpr int kSteps = 2, kParts = 1;
  static constexpr float kFactor = 1.0f;
  static TURBOQUANT_INLINE void Load(const uint8_t* line, __m512 (&x)[kSteps][kParts]) {
    const __m512i pairs = _mm512_loadu_si512(line);
    x[0][0] = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    x[1][0] = _mm512_castsi512_ps(
        _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
  }
  static TURBOQUANT_INLINE __m512 RowValues(const float* row, int step) {
    return _mm512_set1_ps(row[step]);
  }
  static TURBOQUANT_INLINE __m512 Merge(const __m512 (&acc)[kParts]) { return acc[0]; }
};

struct LinesF16 {
  static constexpr int kCodes = 2;
  static constexpr int kSteps = 1, kParts = 2;
  static constexpr float kFactor = 1.0f;
  static TURBOQUANT_INLINE void Load(const uint8_t* line, __m512 (&x)[kSteps][kParts]) {
    x[0][0] = LoadHalfs(reinterpret_cast<const uint16_t*>(line));
    x[0][1] = LoadHalfs(reinterpret_cast<const uint16_t*>(line + 32));
  }
  static TURBOQUANT_INLINE __m512 RowValues(const float* row, int) { return Pair(row); }
  static TURBOQUANT_INLINE __m512 Merge(const __m512 (&acc)[kParts]) {
    return MergePairs(acc[0], acc[1]);
  }
};

// FP8: the codes 0 and 2 of a lane become f16 in the low bytes' vector, 1 and 3 in the high bytes'.
// Rows therefore hold the numbers of a quad in the order 0 2 1 3 (ToFp8Order). E5M2 is the upper
// byte of an f16. E4M3, moved down one bit under the sign, is an f16 of 2^-8 times the value,
// subnormals included; vcvtph2ps takes subnormals at full speed.
struct LinesE5m2 {
  static constexpr int kCodes = 4;
  static constexpr int kSteps = 2, kParts = 2;
  static constexpr float kFactor = 1.0f;
  static TURBOQUANT_INLINE void Load(const uint8_t* line, __m512 (&x)[kSteps][kParts]) {
    const __m512i bytes = _mm512_loadu_si512(line);
    WidenHalfs(_mm512_slli_epi16(bytes, 8), x[0]);
    WidenHalfs(_mm512_and_si512(bytes, _mm512_set1_epi16(static_cast<short>(0xFF00u))), x[1]);
  }
  static TURBOQUANT_INLINE __m512 RowValues(const float* row, int step) {
    return Pair(row + 2 * step);
  }
  static TURBOQUANT_INLINE __m512 Merge(const __m512 (&acc)[kParts]) {
    return MergePairs(acc[0], acc[1]);
  }
};

struct LinesE4m3 {
  static constexpr int kCodes = 4;
  static constexpr int kSteps = 2, kParts = 2;
  static constexpr float kFactor = 256.0f;
  static TURBOQUANT_INLINE void Load(const uint8_t* line, __m512 (&x)[kSteps][kParts]) {
    const __m512i bytes = _mm512_loadu_si512(line);
    const __m512i mask = _mm512_set1_epi16(static_cast<short>(0xBF80u));
    WidenHalfs(_mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 1), mask), x[0]);
    WidenHalfs(_mm512_and_si512(_mm512_srai_epi16(bytes, 1), mask), x[1]);
  }
  static TURBOQUANT_INLINE __m512 RowValues(const float* row, int step) {
    return Pair(row + 2 * step);
  }
  static TURBOQUANT_INLINE __m512 Merge(const __m512 (&acc)[kParts]) {
    return MergePairs(acc[0], acc[1]);
  }
};

TURBOQUANT_INLINE __m512 ToFp8Order(__m512 x) { return _mm512_permute_ps(x, 0xD8); }

}  // namespace
}  // namespace turboquant::avx512

#endif  // TURBOQUANT_KERNELS_AVX512_LINES_H_
