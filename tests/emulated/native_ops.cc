#include <immintrin.h>

#include <cstring>

#include "intrinsics.h"

namespace turboquant {
namespace {

// A 256-bit operation on each half; 16 lanes in, 16 lanes out.
template <typename Reg, typename F>
Lanes Halves(const Lanes& a, const Lanes& b, const Lanes& c, const F& f) {
  Lanes out;
  for (unsigned i = 0; i < 16; i += 8) {
    Reg x, y, z;
    std::memcpy(&x, &a[i], sizeof(x));
    std::memcpy(&y, &b[i], sizeof(y));
    std::memcpy(&z, &c[i], sizeof(z));
    const auto result = f(x, y, z);
    std::memcpy(&out[i], &result, sizeof(result));
  }
  return out;
}
template <typename Reg, typename F>
Lanes Quarters(const Lanes& a, const Lanes& b, const F& f) {
  Lanes out;
  for (unsigned i = 0; i < 16; i += 4) {
    Reg x, y;
    std::memcpy(&x, &a[i], sizeof(x));
    std::memcpy(&y, &b[i], sizeof(y));
    const auto result = f(x, y);
    std::memcpy(&out[i], &result, sizeof(result));
  }
  return out;
}
// Widening: 8 results at a time from `bytes` bytes each.
template <typename F>
Lanes Widen(const Lanes& a, size_t bytes, const F& f) {
  Lanes out;
  for (unsigned i = 0; i < 2; ++i) {
    __m128i x = _mm_setzero_si128();
    std::memcpy(&x, reinterpret_cast<const uint8_t*>(a.data()) + i * bytes, bytes);
    const auto result = f(x);
    std::memcpy(&out[8 * i], &result, sizeof(result));
  }
  return out;
}
Lanes NarrowToHalfs(const Lanes& a) {
  Lanes out = {};
  for (unsigned i = 0; i < 2; ++i) {
    __m256 x;
    std::memcpy(&x, &a[8 * i], sizeof(x));
    const __m128i result = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    std::memcpy(&out[4 * i], &result, sizeof(result));
  }
  return out;
}

#define ARGS const Lanes &a, [[maybe_unused]] const Lanes &b, [[maybe_unused]] const Lanes &c
#define PS(call)                                                                              \
  [](ARGS) {                                                                                  \
    return Halves<__m256>(                                                                    \
        a, b, c,                                                                              \
        [](__m256 x, [[maybe_unused]] __m256 y, [[maybe_unused]] __m256 z) { return call; }); \
  }
#define SI(call)                                                                                 \
  [](ARGS) {                                                                                     \
    return Halves<__m256i>(a, b, c,                                                              \
                           [](__m256i x, [[maybe_unused]] __m256i y, __m256i) { return call; }); \
  }
#define PS128(call)                                                                          \
  [](ARGS) {                                                                                 \
    return Quarters<__m128>(a, b, [](__m128 x, [[maybe_unused]] __m128 y) { return call; }); \
  }
#define SI128(call)                                                                             \
  [](ARGS) {                                                                                    \
    return Quarters<__m128i>(a, b, [](__m128i x, [[maybe_unused]] __m128i y) { return call; }); \
  }
#define WIDEN(bytes, call) [](ARGS) { return Widen(a, bytes, [](__m128i x) { return call; }); }

constexpr IntrinsicOp kOps[] = {
    {"add_ps", true, PS(_mm256_add_ps(x, y))},
    {"sub_ps", true, PS(_mm256_sub_ps(x, y))},
    {"mul_ps", true, PS(_mm256_mul_ps(x, y))},
    {"div_ps", true, PS(_mm256_div_ps(x, y))},
    {"max_ps", false, PS(_mm256_max_ps(x, y))},
    {"min_ps", false, PS(_mm256_min_ps(x, y))},
    {"fmadd_ps", true, PS(_mm256_fmadd_ps(x, y, z))},
    {"fnmadd_ps", true, PS(_mm256_fnmadd_ps(x, y, z))},
    {"round to nearest", true,
     PS(_mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))},
    {"cvtps_epi32", false, PS(_mm256_cvtps_epi32(x))},
    {"cvtepi32_ps", true, SI(_mm256_cvtepi32_ps(x))},
    {"cvtph_ps", true, WIDEN(16, _mm256_cvtph_ps(x))},
    {"cvtps_ph", false, [](ARGS) { return NarrowToHalfs(a); }},
    {"cvtepu8_epi32", false, WIDEN(8, _mm256_cvtepu8_epi32(x))},
    {"cvtepu16_epi32", false, WIDEN(16, _mm256_cvtepu16_epi32(x))},
    {"cvtepu32_epi64", false, WIDEN(16, _mm256_cvtepu32_epi64(x))},
    {"abs_epi32", false, SI(_mm256_abs_epi32(x))},
    {"add_epi32", false, SI(_mm256_add_epi32(x, y))},
    {"sub_epi32", false, SI(_mm256_sub_epi32(x, y))},
    {"sub_epi8", false, SI(_mm256_sub_epi8(x, y))},
    {"shuffle_epi8", false, SI(_mm256_shuffle_epi8(x, y))},
    {"mullo_epi32", false, SI(_mm256_mullo_epi32(x, y))},
    {"slli_epi16 8", false, SI(_mm256_slli_epi16(x, 8))},
    {"srli_epi16 4", false, SI(_mm256_srli_epi16(x, 4))},
    {"srai_epi16 1", false, SI(_mm256_srai_epi16(x, 1))},
    {"slli_epi32 8", false, SI(_mm256_slli_epi32(x, 8))},
    {"srli_epi32 20", false, SI(_mm256_srli_epi32(x, 20))},
    {"srai_epi32 8", false, SI(_mm256_srai_epi32(x, 8))},
    {"slli_epi64 32", false, SI(_mm256_slli_epi64(x, 32))},
    {"packus_epi32", false, SI(_mm256_packus_epi32(x, y))},
    {"packus_epi16", false, SI(_mm256_packus_epi16(x, y))},
    {"permute_ps 0xD8", false, PS(_mm256_permute_ps(x, 0xD8))},
    {"cmp LT_OQ", false, PS(_mm256_cmp_ps(x, y, _CMP_LT_OQ))},
    {"cmp GT_OQ", false, PS(_mm256_cmp_ps(x, y, _CMP_GT_OQ))},
    {"cmp ORD_Q", false, PS(_mm256_cmp_ps(x, y, _CMP_ORD_Q))},
    {"cmp UNORD_Q", false, PS(_mm256_cmp_ps(x, y, _CMP_UNORD_Q))},
    {"cmpeq_epi32", false, SI(_mm256_cmpeq_epi32(x, y))},
    {"movehl_ps", false, PS128(_mm_movehl_ps(x, y))},
    {"movehdup_ps", false, PS128(_mm_movehdup_ps(x))},
    {"add_ss", true, PS128(_mm_add_ss(x, y))},
    {"max_ss", false, PS128(_mm_max_ss(x, y))},
    {"unpacklo_epi32", false, SI128(_mm_unpacklo_epi32(x, y))},
    {"unpackhi_epi32", false, SI128(_mm_unpackhi_epi32(x, y))},
    {"shuffle_epi32 0x4E", false, SI128(_mm_shuffle_epi32(x, 0x4E))},
    {"shuffle_epi32 0xB1", false, SI128(_mm_shuffle_epi32(x, 0xB1))},
    {"cvtps_ph 128", false, PS128(_mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))},
    {"cvtph_ps 128", true, SI128(_mm_cvtph_ps(x))},
};

}  // namespace

std::span<const IntrinsicOp> NativeOps() { return kOps; }

}  // namespace turboquant
