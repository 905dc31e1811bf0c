// The AVX-512 intrinsics that src/kernels/avx512 and avx512bf16 use, in plain C++ after the
// operation sections of the Intel Intrinsics Guide. Put before the compiler's own <immintrin.h> in
// the include path, it lets those sources be compiled unchanged for any CPU, so that check_kernels
// can run them where there is no AVX-512. What it cannot show: that the compiler encodes the
// instructions right, alignment faults, and speed.
//
// SIMDe (Debian 0.7.4) was tried for this and lacks most of the float and mask operations used
// here.
#ifndef TURBOQUANT_TESTS_EMULATED_IMMINTRIN_H_
#define TURBOQUANT_TESTS_EMULATED_IMMINTRIN_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#define EMULATED inline __attribute__((always_inline))

namespace emulated {

template <typename T, int kBytes>
struct alignas(kBytes) Vector {
  T lane[kBytes / sizeof(T)];
};

// The bits of one register as lanes of another type; also narrows to the low half or quarter.
template <typename To, typename From>
EMULATED To As(const From& from) {
  static_assert(sizeof(To) <= sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(To));
  return to;
}

template <int kBytes>
using F32 = Vector<float, kBytes>;
template <int kBytes>
using I32 = Vector<int32_t, kBytes>;
template <int kBytes>
using U32 = Vector<uint32_t, kBytes>;
template <int kBytes>
using I16 = Vector<int16_t, kBytes>;
template <int kBytes>
using U16 = Vector<uint16_t, kBytes>;
template <int kBytes>
using U8 = Vector<uint8_t, kBytes>;

// out.lane[i] = f(i).
template <typename Out, typename F>
EMULATED Out Make(const F& f) {
  Out out;
  for (unsigned i = 0; i < sizeof(out) / sizeof(out.lane[0]); ++i) {
    out.lane[i] = static_cast<decltype(+out.lane[0])>(f(i));
  }
  return out;
}

}  // namespace emulated

struct __m128 : emulated::F32<16> {};
struct __m256 : emulated::F32<32> {};
struct __m512 : emulated::F32<64> {};
struct __m512d : emulated::Vector<double, 64> {};
struct __m128i : emulated::I32<16> {};
struct __m256i : emulated::I32<32> {};
struct __m512i : emulated::I32<64> {};
struct __m256bh : emulated::U16<32> {};
struct __m512bh : emulated::U16<64> {};
using __mmask16 = uint16_t;

namespace emulated {

template <typename Out, typename F>
EMULATED Out MakeFloat(const F& f) {
  Out out;
  for (unsigned i = 0; i < sizeof(out) / sizeof(float); ++i) out.lane[i] = f(i);
  return out;
}

// Integer lanes of type Lane in a register type that is declared with 32-bit lanes.
template <typename Out, typename Lane, typename F>
EMULATED Out MakeInt(const F& f) {
  Vector<Lane, sizeof(Out)> out;
  for (unsigned i = 0; i < sizeof(Out) / sizeof(Lane); ++i) out.lane[i] = static_cast<Lane>(f(i));
  return As<Out>(out);
}

template <typename F>
EMULATED __mmask16 MakeMask(const F& f) {
  unsigned mask = 0;
  for (unsigned i = 0; i < 16; ++i) mask |= (f(i) ? 1u : 0u) << i;
  return static_cast<__mmask16>(mask);
}

EMULATED uint32_t Bits(float x) { return As<uint32_t>(x); }
EMULATED float FromBits(uint32_t bits) { return As<float>(bits); }

// vmaxps, vminps: the second operand if either is NaN or both are zero.
EMULATED float Max(float a, float b) { return a > b ? a : b; }
EMULATED float Min(float a, float b) { return a < b ? a : b; }

// Round to nearest, ties to even, under the default rounding mode; NaN and what does not fit: the
// integer indefinite.
EMULATED int32_t ToInt(float x) {
  const float rounded = std::nearbyint(x);
  return rounded >= -0x1p31f && rounded < 0x1p31f ? static_cast<int32_t>(rounded) : INT32_MIN;
}

// vscalefps: a * 2^floor(b).
EMULATED float ScaleBy(float a, float b) {
  if (!std::isfinite(b)) return a * std::exp2(b);
  return std::scalbn(a, static_cast<int>(Min(Max(std::floor(b), -400.0f), 400.0f)));
}

EMULATED float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3FFu;
  if (exponent == 31)
    return FromBits(sign | 0x7F800000u | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0u));
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                        : std::ldexp(static_cast<float>(mantissa + 1024),
                                                     static_cast<int>(exponent) - 25);
  return FromBits(sign | Bits(magnitude));
}

EMULATED uint16_t FloatToHalf(float x) {
  const auto sign = static_cast<uint16_t>(Bits(x) >> 16 & 0x8000);
  if (std::isnan(x)) return static_cast<uint16_t>(sign | 0x7E00 | (Bits(x) >> 13 & 0x3FF));
  const float magnitude = std::fabs(x);
  if (magnitude >= 65520.0f) return static_cast<uint16_t>(sign | 0x7C00);
  int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
  // Steps of 2^(exponent - 10); 2048 of them carry into the next exponent by themselves.
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  const uint32_t biased = magnitude < 0x1p-14f ? 0u : static_cast<uint32_t>(exponent + 15) << 10;
  return static_cast<uint16_t>(sign | (biased + steps - (biased == 0 ? 0u : 1024u)));
}

// AVX512_BF16 takes subnormal numbers as zero, on the way in and out.
EMULATED float Flush(float x) {
  return (Bits(x) & 0x7F800000u) == 0 ? FromBits(Bits(x) & 0x80000000u) : x;
}
EMULATED float Bf16ToFloat(uint16_t x) { return Flush(FromBits(static_cast<uint32_t>(x) << 16)); }
EMULATED uint16_t FloatToBf16(float x) {
  if (std::isnan(x)) return static_cast<uint16_t>(Bits(x) >> 16 | 0x40);
  const uint32_t bits = Bits(Flush(x));
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace emulated

// Loads and stores. Pointers are void, so that the compiler assumes no alignment; the aligned
// forms, which fault on real hardware, check it.
#define EMULATED_LOAD(name, Reg)       \
  EMULATED Reg name(const void* p) {   \
    Reg out;                           \
    std::memcpy(&out, p, sizeof(out)); \
    return out;                        \
  }
#define EMULATED_STORE(name, Reg, alignment)                                 \
  EMULATED void name(void* p, Reg x) {                                       \
    if (reinterpret_cast<uintptr_t>(p) % (alignment) != 0) __builtin_trap(); \
    std::memcpy(p, &x, sizeof(x));                                           \
  }
EMULATED_LOAD(_mm_loadu_si128, __m128i)
EMULATED_LOAD(_mm256_loadu_si256, __m256i)
EMULATED_LOAD(_mm512_loadu_ps, __m512)
EMULATED_LOAD(_mm512_loadu_si512, __m512i)
EMULATED_STORE(_mm_storeu_si128, __m128i, 1)
EMULATED_STORE(_mm256_storeu_si256, __m256i, 1)
EMULATED_STORE(_mm256_store_si256, __m256i, 32)
EMULATED_STORE(_mm512_storeu_ps, __m512, 1)
EMULATED_STORE(_mm512_storeu_si512, __m512i, 1)
EMULATED_STORE(_mm512_store_ps, __m512, 64)
EMULATED_STORE(_mm512_store_si512, __m512i, 64)
#undef EMULATED_LOAD
#undef EMULATED_STORE
EMULATED __m512 _mm512_load_ps(const void* p) {
  if (reinterpret_cast<uintptr_t>(p) % 64 != 0) __builtin_trap();
  return _mm512_loadu_ps(p);
}
// Masked-off lanes touch no memory.
EMULATED __m512 _mm512_maskz_loadu_ps(__mmask16 k, const float* p) {
  return emulated::MakeFloat<__m512>([&](unsigned i) { return k >> i & 1 ? p[i] : 0.0f; });
}
EMULATED void _mm256_mask_storeu_epi16(void* p, __mmask16 k, __m256i x) {
  const auto lanes = emulated::As<emulated::U16<32>>(x);
  for (unsigned i = 0; i < 16; ++i) {
    if (k >> i & 1) std::memcpy(static_cast<uint16_t*>(p) + i, &lanes.lane[i], 2);
  }
}
EMULATED __m512i _mm512_i32gather_epi32(__m512i index, const void* base, int scale) {
  return emulated::MakeInt<__m512i, int32_t>([&](unsigned i) {
    int32_t value;
    std::memcpy(&value,
                static_cast<const char*>(base) + static_cast<int64_t>(index.lane[i]) * scale, 4);
    return value;
  });
}
enum { _MM_HINT_T0 = 3 };
#define _mm_prefetch(p, hint) __builtin_prefetch(p)

// Constants, and moves between registers.
EMULATED __m512 _mm512_setzero_ps() { return {}; }
EMULATED __m512i _mm512_setzero_si512() { return {}; }
EMULATED __m512 _mm512_set1_ps(float x) {
  return emulated::MakeFloat<__m512>([&](unsigned) { return x; });
}
EMULATED __m512d _mm512_set1_pd(double x) {
  __m512d out;
  for (double& lane : out.lane) lane = x;
  return out;
}
EMULATED __m512i _mm512_set1_epi8(char x) {
  return emulated::MakeInt<__m512i, int8_t>([&](unsigned) { return x; });
}
EMULATED __m512i _mm512_set1_epi16(short x) {
  return emulated::MakeInt<__m512i, int16_t>([&](unsigned) { return x; });
}
EMULATED __m512i _mm512_set1_epi32(int x) {
  return emulated::MakeInt<__m512i, int32_t>([&](unsigned) { return x; });
}
template <typename... Ints>
EMULATED __m512i _mm512_setr_epi32(Ints... x) {
  static_assert(sizeof...(x) == 16);
  const int32_t lanes[16] = {x...};
  return emulated::MakeInt<__m512i, int32_t>([&](unsigned i) { return lanes[i]; });
}
EMULATED __m128 _mm_set_ss(float x) {
  __m128 out = {};
  out.lane[0] = x;
  return out;
}
EMULATED __m128i _mm_cvtsi32_si128(int x) {
  __m128i out = {};
  out.lane[0] = x;
  return out;
}
EMULATED int _mm_cvtsi128_si32(__m128i x) { return x.lane[0]; }
EMULATED int _mm_extract_epi16(__m128i x, int i) {
  return emulated::As<emulated::U16<16>>(x).lane[i];
}
EMULATED float _mm_cvtss_f32(__m128 x) { return x.lane[0]; }
EMULATED float _mm512_cvtss_f32(__m512 x) { return x.lane[0]; }
EMULATED __m512 _mm512_castpd_ps(__m512d x) { return emulated::As<__m512>(x); }
EMULATED __m512i _mm512_castps_si512(__m512 x) { return emulated::As<__m512i>(x); }
EMULATED __m512 _mm512_castsi512_ps(__m512i x) { return emulated::As<__m512>(x); }
EMULATED __m256 _mm512_castps512_ps256(__m512 x) { return emulated::As<__m256>(x); }
EMULATED __m256i _mm512_castsi512_si256(__m512i x) { return emulated::As<__m256i>(x); }
EMULATED __m128 _mm256_castps256_ps128(__m256 x) { return emulated::As<__m128>(x); }
EMULATED __m128i _mm256_castsi256_si128(__m256i x) { return emulated::As<__m128i>(x); }

// Part `i` of a register.
#define EMULATED_EXTRACT(name, Out, In)                                             \
  EMULATED Out name(In x, int i) {                                                  \
    Out out;                                                                        \
    std::memcpy(&out, x.lane + i * (sizeof(Out) / sizeof(x.lane[0])), sizeof(out)); \
    return out;                                                                     \
  }
EMULATED_EXTRACT(_mm512_extractf32x8_ps, __m256, __m512)
EMULATED_EXTRACT(_mm512_extracti64x4_epi64, __m256i, __m512i)
EMULATED_EXTRACT(_mm256_extractf128_ps, __m128, __m256)
EMULATED_EXTRACT(_mm256_extracti128_si256, __m128i, __m256i)
#undef EMULATED_EXTRACT

// Arithmetic, lane by lane.
#define EMULATED_FLOAT(name, Reg, expr)               \
  EMULATED Reg name(Reg x, Reg y) {                   \
    return emulated::MakeFloat<Reg>([&](unsigned i) { \
      const float a = x.lane[i], b = y.lane[i];       \
      return (expr);                                  \
    });                                               \
  }
EMULATED_FLOAT(_mm_add_ps, __m128, a + b)
EMULATED_FLOAT(_mm256_add_ps, __m256, a + b)
EMULATED_FLOAT(_mm512_add_ps, __m512, a + b)
EMULATED_FLOAT(_mm512_sub_ps, __m512, a - b)
EMULATED_FLOAT(_mm512_mul_ps, __m512, a* b)
EMULATED_FLOAT(_mm512_div_ps, __m512, a / b)
EMULATED_FLOAT(_mm_max_ps, __m128, emulated::Max(a, b))
EMULATED_FLOAT(_mm256_max_ps, __m256, emulated::Max(a, b))
EMULATED_FLOAT(_mm512_max_ps, __m512, emulated::Max(a, b))
EMULATED_FLOAT(_mm512_min_ps, __m512, emulated::Min(a, b))
EMULATED_FLOAT(_mm512_scalef_ps, __m512, emulated::ScaleBy(a, b))
#undef EMULATED_FLOAT
EMULATED __m128 _mm_add_ss(__m128 x, __m128 y) {
  x.lane[0] += y.lane[0];
  return x;
}
EMULATED __m128 _mm_max_ss(__m128 x, __m128 y) {
  x.lane[0] = emulated::Max(x.lane[0], y.lane[0]);
  return x;
}
EMULATED __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
  return emulated::MakeFloat<__m512>(
      [&](unsigned i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
EMULATED __m512 _mm512_fnmadd_ps(__m512 a, __m512 b, __m512 c) {
  return emulated::MakeFloat<__m512>(
      [&](unsigned i) { return __builtin_fmaf(-a.lane[i], b.lane[i], c.lane[i]); });
}
EMULATED __m512 _mm512_abs_ps(__m512 x) {
  return emulated::MakeFloat<__m512>([&](unsigned i) { return std::fabs(x.lane[i]); });
}
// Only imm8 = 0 is used: to an integer, ties to even.
EMULATED __m512 _mm512_roundscale_ps(__m512 x, int imm8) {
  if (imm8 != 0) __builtin_trap();
  return emulated::MakeFloat<__m512>([&](unsigned i) { return std::nearbyint(x.lane[i]); });
}

#define EMULATED_INT(name, Reg, Lane, expr)                               \
  EMULATED Reg name(Reg x, Reg y) {                                       \
    const auto xs = emulated::As<emulated::Vector<Lane, sizeof(Reg)>>(x); \
    const auto ys = emulated::As<emulated::Vector<Lane, sizeof(Reg)>>(y); \
    return emulated::MakeInt<Reg, Lane>([&](unsigned i) {                 \
      const Lane a = xs.lane[i], b = ys.lane[i];                          \
      return (expr);                                                      \
    });                                                                   \
  }
EMULATED_INT(_mm_add_epi32, __m128i, uint32_t, a + b)
EMULATED_INT(_mm256_add_epi32, __m256i, uint32_t, a + b)
EMULATED_INT(_mm512_add_epi32, __m512i, uint32_t, a + b)
EMULATED_INT(_mm512_sub_epi32, __m512i, uint32_t, a - b)
EMULATED_INT(_mm512_sub_epi8, __m512i, uint8_t, static_cast<uint8_t>(a - b))
EMULATED_INT(_mm512_mullo_epi32, __m512i, uint32_t, a* b)
EMULATED_INT(_mm512_and_si512, __m512i, uint32_t, a& b)
EMULATED_INT(_mm512_or_si512, __m512i, uint32_t, a | b)
EMULATED_INT(_mm512_xor_si512, __m512i, uint32_t, a ^ b)
#undef EMULATED_INT

// Bytes of x, within each 16, by the low bits of y; 0 where y has bit 7 set.
EMULATED __m512i _mm512_shuffle_epi8(__m512i x, __m512i y) {
  const auto xs = emulated::As<emulated::Vector<uint8_t, 64>>(x);
  const auto ys = emulated::As<emulated::Vector<uint8_t, 64>>(y);
  return emulated::MakeInt<__m512i, uint8_t>([&](unsigned i) {
    const uint8_t from = ys.lane[i];
    return from >= 128 ? uint8_t{0} : xs.lane[(i & ~15u) + (from & 15u)];
  });
}

// Shifts by a count below the lane's width.
#define EMULATED_SHIFT(name, Lane, expr)                         \
  EMULATED __m512i name(__m512i x, unsigned n) {                 \
    const auto xs = emulated::As<emulated::Vector<Lane, 64>>(x); \
    return emulated::MakeInt<__m512i, Lane>([&](unsigned i) {    \
      const Lane a = xs.lane[i];                                 \
      return (expr);                                             \
    });                                                          \
  }
EMULATED_SHIFT(_mm512_slli_epi16, uint16_t, a << n)
EMULATED_SHIFT(_mm512_srli_epi16, uint16_t, a >> n)
EMULATED_SHIFT(_mm512_srai_epi16, int16_t, a >> n)
EMULATED_SHIFT(_mm512_slli_epi32, uint32_t, a << n)
EMULATED_SHIFT(_mm512_srli_epi32, uint32_t, a >> n)
EMULATED_SHIFT(_mm512_srai_epi32, int32_t, a >> n)
EMULATED_SHIFT(_mm512_slli_epi64, uint64_t, a << n)
#undef EMULATED_SHIFT
EMULATED __m512i _mm512_sll_epi32(__m512i x, __m128i n) {
  return _mm512_slli_epi32(x, static_cast<unsigned>(n.lane[0]));
}
EMULATED __m512i _mm512_abs_epi32(__m512i x) {
  return emulated::MakeInt<__m512i, int32_t>([&](unsigned i) {
    return x.lane[i] < 0 ? 0u - static_cast<uint32_t>(x.lane[i]) : static_cast<uint32_t>(x.lane[i]);
  });
}

// dst += the four products u8 x s8 of a lane, modulo 2^32.
EMULATED __m512i _mm512_dpbusd_epi32(__m512i src, __m512i x, __m512i y) {
  const auto a = emulated::As<emulated::U8<64>>(x);
  const auto b = emulated::As<emulated::Vector<int8_t, 64>>(y);
  return emulated::MakeInt<__m512i, uint32_t>([&](unsigned i) {
    int32_t sum = 0;
    for (unsigned j = 4 * i; j < 4 * i + 4; ++j) sum += a.lane[j] * b.lane[j];
    return static_cast<uint32_t>(src.lane[i]) + static_cast<uint32_t>(sum);
  });
}
// Per lane first the odd, then the even product; each fused and flushed.
EMULATED __m512 _mm512_dpbf16_ps(__m512 src, __m512bh x, __m512bh y) {
  return emulated::MakeFloat<__m512>([&](unsigned i) {
    const auto product = [&](unsigned j, float acc) {
      return emulated::Flush(__builtin_fmaf(emulated::Bf16ToFloat(x.lane[j]),
                                            emulated::Bf16ToFloat(y.lane[j]),
                                            emulated::Flush(acc)));
    };
    return product(2 * i, product(2 * i + 1, src.lane[i]));
  });
}

// Masks.
EMULATED __m512 _mm512_maskz_mov_ps(__mmask16 k, __m512 x) {
  return emulated::MakeFloat<__m512>([&](unsigned i) { return k >> i & 1 ? x.lane[i] : 0.0f; });
}
EMULATED __m512i _mm512_mask_mov_epi32(__m512i src, __mmask16 k, __m512i x) {
  return emulated::MakeInt<__m512i, int32_t>(
      [&](unsigned i) { return k >> i & 1 ? x.lane[i] : src.lane[i]; });
}
EMULATED __m512 _mm512_mask_max_ps(__m512 src, __mmask16 k, __m512 x, __m512 y) {
  return emulated::MakeFloat<__m512>(
      [&](unsigned i) { return k >> i & 1 ? emulated::Max(x.lane[i], y.lane[i]) : src.lane[i]; });
}
EMULATED __m512 _mm512_mask_min_ps(__m512 src, __mmask16 k, __m512 x, __m512 y) {
  return emulated::MakeFloat<__m512>(
      [&](unsigned i) { return k >> i & 1 ? emulated::Min(x.lane[i], y.lane[i]) : src.lane[i]; });
}
EMULATED __m512 _mm512_maskz_div_ps(__mmask16 k, __m512 x, __m512 y) {
  return _mm512_maskz_mov_ps(k, _mm512_div_ps(x, y));
}
enum { _CMP_ORD_Q = 7, _CMP_UNORD_Q = 3, _CMP_LT_OQ = 17, _CMP_GT_OQ = 30 };
EMULATED __mmask16 _mm512_cmp_ps_mask(__m512 x, __m512 y, int predicate) {
  return emulated::MakeMask([&](unsigned i) {
    const float a = x.lane[i], b = y.lane[i];
    switch (predicate) {
      case _CMP_ORD_Q:
        return a == a && b == b;
      case _CMP_UNORD_Q:
        return a != a || b != b;
      case _CMP_LT_OQ:
        return a < b;
      case _CMP_GT_OQ:
        return a > b;
      default:
        __builtin_trap();
    }
  });
}
EMULATED __mmask16 _mm512_cmpeq_epi32_mask(__m512i x, __m512i y) {
  return emulated::MakeMask([&](unsigned i) { return x.lane[i] == y.lane[i]; });
}
EMULATED __mmask16 _mm512_testn_epi32_mask(__m512i x, __m512i y) {
  return emulated::MakeMask([&](unsigned i) { return (x.lane[i] & y.lane[i]) == 0; });
}

// Conversions.
enum { _MM_FROUND_TO_NEAREST_INT = 0, _MM_FROUND_NO_EXC = 8 };
EMULATED __m512 _mm512_cvtepi32_ps(__m512i x) {
  return emulated::MakeFloat<__m512>([&](unsigned i) { return static_cast<float>(x.lane[i]); });
}
EMULATED __m512i _mm512_cvtps_epi32(__m512 x) {
  return emulated::MakeInt<__m512i, int32_t>(
      [&](unsigned i) { return emulated::ToInt(x.lane[i]); });
}
EMULATED __m512i _mm512_maskz_cvtps_epi32(__mmask16 k, __m512 x) {
  return emulated::MakeInt<__m512i, int32_t>(
      [&](unsigned i) { return k >> i & 1 ? emulated::ToInt(x.lane[i]) : 0; });
}
EMULATED __m512 _mm512_cvtph_ps(__m256i x) {
  const auto halfs = emulated::As<emulated::U16<32>>(x);
  return emulated::MakeFloat<__m512>(
      [&](unsigned i) { return emulated::HalfToFloat(halfs.lane[i]); });
}
EMULATED __m128 _mm_cvtph_ps(__m128i x) {
  const auto halfs = emulated::As<emulated::U16<16>>(x);
  return emulated::MakeFloat<__m128>(
      [&](unsigned i) { return emulated::HalfToFloat(halfs.lane[i]); });
}
EMULATED __m256i _mm512_cvtps_ph(__m512 x, int) {
  return emulated::MakeInt<__m256i, uint16_t>(
      [&](unsigned i) { return emulated::FloatToHalf(x.lane[i]); });
}
EMULATED __m128i _mm_cvtps_ph(__m128 x, int) {
  return emulated::MakeInt<__m128i, uint16_t>(
      [&](unsigned i) { return i < 4 ? emulated::FloatToHalf(x.lane[i]) : 0; });
}
EMULATED __m256bh _mm512_cvtneps_pbh(__m512 x) {
  __m256bh out;
  for (unsigned i = 0; i < 16; ++i) out.lane[i] = emulated::FloatToBf16(x.lane[i]);
  return out;
}
EMULATED __m128i _mm512_cvtepi32_epi8(__m512i x) {
  return emulated::MakeInt<__m128i, uint8_t>(
      [&](unsigned i) { return static_cast<uint32_t>(x.lane[i]); });
}
EMULATED __m256i _mm512_cvtepi32_epi16(__m512i x) {
  return emulated::MakeInt<__m256i, uint16_t>(
      [&](unsigned i) { return static_cast<uint32_t>(x.lane[i]); });
}
EMULATED __m512i _mm512_cvtepu8_epi32(__m128i x) {
  const auto bytes = emulated::As<emulated::U8<16>>(x);
  return emulated::MakeInt<__m512i, uint32_t>([&](unsigned i) { return bytes.lane[i]; });
}
EMULATED __m512i _mm512_cvtepu16_epi32(__m256i x) {
  const auto words = emulated::As<emulated::U16<32>>(x);
  return emulated::MakeInt<__m512i, uint32_t>([&](unsigned i) { return words.lane[i]; });
}
EMULATED __m512i _mm512_cvtepu32_epi64(__m256i x) {
  return emulated::MakeInt<__m512i, uint64_t>(
      [&](unsigned i) { return static_cast<uint32_t>(x.lane[i]); });
}

// Shuffles.
EMULATED __m128 _mm_movehl_ps(__m128 x, __m128 y) {
  return {{{y.lane[2], y.lane[3], x.lane[2], x.lane[3]}}};
}
EMULATED __m128 _mm_movehdup_ps(__m128 x) {
  return {{{x.lane[1], x.lane[1], x.lane[3], x.lane[3]}}};
}
EMULATED __m128i _mm_shuffle_epi32(__m128i x, int imm8) {
  return emulated::MakeInt<__m128i, int32_t>(
      [&](unsigned i) { return x.lane[imm8 >> (2 * i) & 3]; });
}
EMULATED __m128i _mm_unpacklo_epi32(__m128i x, __m128i y) {
  return {{{x.lane[0], y.lane[0], x.lane[1], y.lane[1]}}};
}
EMULATED __m128i _mm_unpackhi_epi32(__m128i x, __m128i y) {
  return {{{x.lane[2], y.lane[2], x.lane[3], y.lane[3]}}};
}
EMULATED __m512 _mm512_permute_ps(__m512 x, int imm8) {
  return emulated::MakeFloat<__m512>(
      [&](unsigned i) { return x.lane[i / 4 * 4 + (imm8 >> (i % 4 * 2) & 3)]; });
}
EMULATED __m512 _mm512_permutex2var_ps(__m512 x, __m512i index, __m512 y) {
  return emulated::MakeFloat<__m512>([&](unsigned i) {
    const int j = index.lane[i] & 31;
    return j < 16 ? x.lane[j] : y.lane[j - 16];
  });
}
// Within each 128-bit lane: the lane of x, then that of y, saturated.
EMULATED __m512i _mm512_packus_epi32(__m512i x, __m512i y) {
  return emulated::MakeInt<__m512i, uint16_t>([&](unsigned i) {
    const __m512i& from = i % 8 < 4 ? x : y;
    const int32_t value = from.lane[i / 8 * 4 + i % 4];
    return value < 0 ? 0 : value > 65535 ? 65535 : value;
  });
}
EMULATED __m512i _mm512_packus_epi16(__m512i x, __m512i y) {
  const auto xs = emulated::As<emulated::I16<64>>(x);
  const auto ys = emulated::As<emulated::I16<64>>(y);
  return emulated::MakeInt<__m512i, uint8_t>([&](unsigned i) {
    const int value = (i % 16 < 8 ? xs : ys).lane[i / 16 * 8 + i % 8];
    return value < 0 ? 0 : value > 255 ? 255 : value;
  });
}

#undef EMULATED

#endif  // TURBOQUANT_TESTS_EMULATED_IMMINTRIN_H_
