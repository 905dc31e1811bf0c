// Vector helpers of this folder. Only files of kernels/avx2 include it: what the compiler does not
// inline is emitted under turboquant::avx2 and cannot stand in for code of another instruction set.
#ifndef TURBOQUANT_KERNELS_AVX2_VEC_H_
#define TURBOQUANT_KERNELS_AVX2_VEC_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

// The inner loops must be inlined with their accumulators in registers; left to itself, clang 19
// keeps some row counts as calls with accumulators in memory.
#define TQ_ALWAYS_INLINE inline __attribute__((always_inline))

namespace turboquant::avx2 {

inline constexpr int kLanes = 16;      // lanes of a line: tokens of K, channels of V
inline constexpr int kLineBytes = 64;  // a lane is 4 bytes

inline size_t Size(int n) { return static_cast<size_t>(n); }
inline float MaxOf(float a, float b) { return a > b ? a : b; }

inline __m256i LoadBytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline void StoreBytes(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
// Distance from one line to what is fetched beside it; the two lie in different allocations.
inline ptrdiff_t PrefetchOffset(const uint8_t* prefetch, const uint8_t* lines) {
  return static_cast<ptrdiff_t>(reinterpret_cast<uintptr_t>(prefetch) -
                                reinterpret_cast<uintptr_t>(lines));
}

inline __m128i LoadBytes16(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// A pair of 16-bit factors, or of floats, in every lane.
inline __m256i BroadcastPair(const int16_t* p) {
  int32_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return _mm256_set1_epi32(bits);
}
// Four bytes in every lane.
inline __m256i BroadcastQuad(const void* p) {
  int32_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return _mm256_set1_epi32(bits);
}
inline __m256 BroadcastPair(const float* p) {
  double bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return _mm256_castpd_ps(_mm256_set1_pd(bits));
}

// 8 halves to floats.
inline __m256 LoadHalves(const uint16_t* p) { return _mm256_cvtph_ps(LoadBytes16(p)); }

inline float HorizontalMax(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  m = _mm_max_ss(m, _mm_movehdup_ps(m));
  return _mm_cvtss_f32(m);
}
inline float HorizontalSum(__m256 v) {
  __m128 m = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_add_ps(m, _mm_movehl_ps(m, m));
  m = _mm_add_ss(m, _mm_movehdup_ps(m));
  return _mm_cvtss_f32(m);
}
inline int32_t HorizontalSum(__m256i v) {
  __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  return _mm_cvtsi128_si32(m);
}

inline uint16_t ToF16(float x) {
  return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), 0), 0));
}
inline float FromF16(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
// 1 / scale as the codecs have it.
inline float Inverse(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

inline __m256 Abs(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

// Takes the pack of two vectors of eight integers (16 codes of 16 bits) and brings the codes into
// the order in which the integer formats multiply: 0 2 1 3 of every four.
inline __m256i OrderQuads(__m256i packed) {
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
                                         0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  // The pack worked within 128-bit halves: put its four quads in order.
  return _mm256_shuffle_epi8(_mm256_permute4x64_epi64(packed, 0xD8), order);
}

}  // namespace turboquant::avx2

#endif  // TURBOQUANT_KERNELS_AVX2_VEC_H_
