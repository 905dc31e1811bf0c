#include "immintrin.h"  // this folder's

#include <iterator>

#include "intrinsics.h"

namespace turboquant {
namespace {

template <typename Reg>
Reg Load(const Lanes& x) {
  Reg out;
  std::memcpy(&out, x.data(), sizeof(out));
  return out;
}
template <typename Reg>
Lanes Store(const Reg& x) {
  Lanes out = {};
  std::memcpy(out.data(), &x, sizeof(x));
  return out;
}
Lanes FromMask(__mmask16 mask) {
  Lanes out;
  for (unsigned i = 0; i < 16; ++i) out[i] = (mask >> i & 1) != 0 ? ~0u : 0u;
  return out;
}
// A 128-bit operation on each quarter.
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

#define A const Lanes &a, const Lanes &, const Lanes &
#define AB const Lanes &a, const Lanes &b, const Lanes &
#define ABC const Lanes &a, const Lanes &b, const Lanes &c
#define PS(x) Load<__m512>(x)
#define SI(x) Load<__m512i>(x)
#define PS128(call) Quarters<__m128>(a, b, [](__m128 x, [[maybe_unused]] __m128 y) { return call; })
#define SI128(call) \
  Quarters<__m128i>(a, b, [](__m128i x, [[maybe_unused]] __m128i y) { return call; })

constexpr IntrinsicOp kOps[] = {
    {"add_ps", true, [](AB) { return Store(_mm512_add_ps(PS(a), PS(b))); }},
    {"sub_ps", true, [](AB) { return Store(_mm512_sub_ps(PS(a), PS(b))); }},
    {"mul_ps", true, [](AB) { return Store(_mm512_mul_ps(PS(a), PS(b))); }},
    {"div_ps", true, [](AB) { return Store(_mm512_div_ps(PS(a), PS(b))); }},
    {"max_ps", false, [](AB) { return Store(_mm512_max_ps(PS(a), PS(b))); }},
    {"min_ps", false, [](AB) { return Store(_mm512_min_ps(PS(a), PS(b))); }},
    {"fmadd_ps", true, [](ABC) { return Store(_mm512_fmadd_ps(PS(a), PS(b), PS(c))); }},
    {"fnmadd_ps", true, [](ABC) { return Store(_mm512_fnmadd_ps(PS(a), PS(b), PS(c))); }},
    {"round to nearest", true, [](A) { return Store(_mm512_roundscale_ps(PS(a), 0)); }},
    {"cvtps_epi32", false, [](A) { return Store(_mm512_cvtps_epi32(PS(a))); }},
    {"cvtepi32_ps", true, [](A) { return Store(_mm512_cvtepi32_ps(SI(a))); }},
    {"cvtph_ps", true, [](A) { return Store(_mm512_cvtph_ps(Load<__m256i>(a))); }},
    {"cvtps_ph", false,
     [](A) {
       return Store(_mm512_cvtps_ph(PS(a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
     }},
    {"cvtepu8_epi32", false, [](A) { return Store(_mm512_cvtepu8_epi32(Load<__m128i>(a))); }},
    {"cvtepu16_epi32", false, [](A) { return Store(_mm512_cvtepu16_epi32(Load<__m256i>(a))); }},
    {"cvtepu32_epi64", false, [](A) { return Store(_mm512_cvtepu32_epi64(Load<__m256i>(a))); }},
    {"abs_epi32", false, [](A) { return Store(_mm512_abs_epi32(SI(a))); }},
    {"add_epi32", false, [](AB) { return Store(_mm512_add_epi32(SI(a), SI(b))); }},
    {"sub_epi32", false, [](AB) { return Store(_mm512_sub_epi32(SI(a), SI(b))); }},
    {"sub_epi8", false, [](AB) { return Store(_mm512_sub_epi8(SI(a), SI(b))); }},
    {"shuffle_epi8", false, [](AB) { return Store(_mm512_shuffle_epi8(SI(a), SI(b))); }},
    {"mullo_epi32", false, [](AB) { return Store(_mm512_mullo_epi32(SI(a), SI(b))); }},
    {"slli_epi16 8", false, [](A) { return Store(_mm512_slli_epi16(SI(a), 8)); }},
    {"srli_epi16 4", false, [](A) { return Store(_mm512_srli_epi16(SI(a), 4)); }},
    {"srai_epi16 1", false, [](A) { return Store(_mm512_srai_epi16(SI(a), 1)); }},
    {"slli_epi32 8", false, [](A) { return Store(_mm512_slli_epi32(SI(a), 8)); }},
    {"srli_epi32 20", false, [](A) { return Store(_mm512_srli_epi32(SI(a), 20)); }},
    {"srai_epi32 8", false, [](A) { return Store(_mm512_srai_epi32(SI(a), 8)); }},
    {"slli_epi64 32", false, [](A) { return Store(_mm512_slli_epi64(SI(a), 32)); }},
    {"packus_epi32", false, [](AB) { return Store(_mm512_packus_epi32(SI(a), SI(b))); }},
    {"packus_epi16", false, [](AB) { return Store(_mm512_packus_epi16(SI(a), SI(b))); }},
    {"permute_ps 0xD8", false, [](A) { return Store(_mm512_permute_ps(PS(a), 0xD8)); }},
    {"cmp LT_OQ", false, [](AB) { return FromMask(_mm512_cmp_ps_mask(PS(a), PS(b), _CMP_LT_OQ)); }},
    {"cmp GT_OQ", false, [](AB) { return FromMask(_mm512_cmp_ps_mask(PS(a), PS(b), _CMP_GT_OQ)); }},
    {"cmp ORD_Q", false, [](AB) { return FromMask(_mm512_cmp_ps_mask(PS(a), PS(b), _CMP_ORD_Q)); }},
    {"cmp UNORD_Q", false,
     [](AB) { return FromMask(_mm512_cmp_ps_mask(PS(a), PS(b), _CMP_UNORD_Q)); }},
    {"cmpeq_epi32", false, [](AB) { return FromMask(_mm512_cmpeq_epi32_mask(SI(a), SI(b))); }},
    {"movehl_ps", false, [](AB) { return PS128(_mm_movehl_ps(x, y)); }},
    {"movehdup_ps", false, [](AB) { return PS128(_mm_movehdup_ps(x)); }},
    {"add_ss", true, [](AB) { return PS128(_mm_add_ss(x, y)); }},
    {"max_ss", false, [](AB) { return PS128(_mm_max_ss(x, y)); }},
    {"unpacklo_epi32", false, [](AB) { return SI128(_mm_unpacklo_epi32(x, y)); }},
    {"unpackhi_epi32", false, [](AB) { return SI128(_mm_unpackhi_epi32(x, y)); }},
    {"shuffle_epi32 0x4E", false, [](AB) { return SI128(_mm_shuffle_epi32(x, 0x4E)); }},
    {"shuffle_epi32 0xB1", false, [](AB) { return SI128(_mm_shuffle_epi32(x, 0xB1)); }},
    {"cvtps_ph 128", false,
     [](AB) { return PS128(_mm_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)); }},
    {"cvtph_ps 128", true, [](AB) { return SI128(_mm_cvtph_ps(x)); }},
};

}  // namespace

std::span<const IntrinsicOp> EmulatedOps() { return kOps; }

}  // namespace turboquant
