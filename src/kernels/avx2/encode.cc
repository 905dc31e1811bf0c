// Encoding: codes equal codec/tile.h bit for bit (kernels/encode_tiles.h).
#include "kernels/avx2/kernels.h"
#include "kernels/avx2/vec.h"
#include "kernels/encode_tiles.h"

namespace turboquant::avx2 {
namespace {

constexpr float kMaxHalf = 65504.0f;

// Scale of a group as f16, as float, and what multiplies values.
struct GroupScale {
  uint16_t scale = 0;
  uint16_t zero_point = 0;
  float inverse = 1.0f;
  float zero = 0.0f;
};

__m256 FiniteMask(__m256 x) {
  return _mm256_cmp_ps(Abs(x), _mm256_set1_ps(__builtin_inff()), _CMP_LT_OQ);
}

GroupScale FitSymmetric(const float* x, int n, float max_code) {
  __m256 max = _mm256_setzero_ps();
  for (int c = 0; c < n; c += 8) {
    const __m256 v = _mm256_loadu_ps(x + c);
    max = _mm256_max_ps(max, _mm256_and_ps(Abs(v), FiniteMask(v)));
  }
  const float ideal = HorizontalMax(max) / max_code;
  GroupScale fit;
  fit.scale = ToF16(ideal < kMaxHalf ? ideal : kMaxHalf);
  fit.inverse = Inverse(FromF16(fit.scale));
  return fit;
}

GroupScale FitAsymmetric(const float* x, int n) {
  const __m256 infinity = _mm256_set1_ps(__builtin_inff());
  const __m256 minus_infinity = _mm256_set1_ps(-__builtin_inff());
  __m256 max = minus_infinity;
  __m256 negative_max = minus_infinity;  // of -x
  for (int c = 0; c < n; c += 8) {
    const __m256 v = _mm256_loadu_ps(x + c);
    const __m256 finite = FiniteMask(v);
    max = _mm256_max_ps(max, _mm256_blendv_ps(minus_infinity, v, finite));
    const __m256 negative =
        _mm256_sub_ps(_mm256_setzero_ps(), _mm256_blendv_ps(infinity, v, finite));
    negative_max = _mm256_max_ps(negative_max, negative);
  }
  const float highest = HorizontalMax(max);
  const float negative_lowest = HorizontalMax(negative_max);  // 0 - min
  GroupScale fit;
  fit.inverse = 0.0f;
  if (highest < -negative_lowest) return fit;  // no finite value
  const float range = highest + negative_lowest;
  const float magnitude = negative_lowest < 0 ? -negative_lowest : negative_lowest;
  const float ideal = range > 0.0f ? range / 15.0f : magnitude;
  fit.scale = ToF16(ideal < kMaxHalf ? ideal : kMaxHalf);
  const float scale = FromF16(fit.scale);
  if (!(scale > 0.0f)) return fit;
  fit.inverse = 1.0f / scale;
  const float zero = negative_lowest / scale;
  fit.zero_point = ToF16(zero > kMaxHalf ? kMaxHalf : zero < -kMaxHalf ? -kMaxHalf : zero);
  fit.zero = FromF16(fit.zero_point);
  return fit;
}

// ---- quantizers: eight scaled values (NaN already 0) to stored codes 0..255, and which of them
// stand at an end ----

struct Codes {
  __m256i stored;
  __m256i at_end;  // all ones where so
};

__m256 Clamp(__m256 x, float low, float high) {
  return _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(low)), _mm256_set1_ps(high));
}

struct Int8Quantizer {
  static constexpr int kBits = 8;
  static GroupScale Fit(const float* x, int n) { return FitSymmetric(x, n, 127.0f); }
  template <bool kKey>
  static Codes Quantize(__m256 p, __m256) {
    const __m256i code = _mm256_cvtps_epi32(Clamp(p, -127.0f, 127.0f));
    const __m256i at_end = _mm256_cmpeq_epi32(_mm256_abs_epi32(code), _mm256_set1_epi32(127));
    if constexpr (kKey) return {_mm256_add_epi32(code, _mm256_set1_epi32(128)), at_end};
    return {_mm256_and_si256(code, _mm256_set1_epi32(255)), at_end};
  }
};

struct Int4Quantizer {
  static constexpr int kBits = 4;
  static GroupScale Fit(const float* x, int n) { return FitSymmetric(x, n, 7.0f); }
  template <bool>
  static Codes Quantize(__m256 p, __m256) {
    const __m256i code = _mm256_cvtps_epi32(Clamp(p, -7.0f, 7.0f));
    const __m256i at_end = _mm256_cmpeq_epi32(_mm256_abs_epi32(code), _mm256_set1_epi32(7));
    return {_mm256_add_epi32(code, _mm256_set1_epi32(8)), at_end};
  }
};

struct Int4AsymQuantizer {
  static constexpr int kBits = 4;
  static GroupScale Fit(const float* x, int n) { return FitAsymmetric(x, n); }
  template <bool>
  static Codes Quantize(__m256 p, __m256 zero) {
    const __m256i code = _mm256_cvtps_epi32(Clamp(_mm256_add_ps(p, zero), 0.0f, 15.0f));
    const __m256i at_end = _mm256_or_si256(_mm256_cmpeq_epi32(code, _mm256_setzero_si256()),
                                           _mm256_cmpeq_epi32(code, _mm256_set1_epi32(15)));
    return {code, at_end};
  }
};

// Rounds the magnitude to kMantissa bits: by integer addition where the result is normal, by
// conversion of multiples of the subnormal step below.
template <int kMantissa, int kBias, int kMaxCode>
struct Fp8Quantizer {
  static constexpr int kBits = 8;
  static constexpr float kMax = kMantissa == 3 ? 448.0f : 57344.0f;
  static constexpr float kStepsPerOne = kMantissa == 3 ? 0x1p9f : 0x1p16f;  // 1 / subnormal step
  static constexpr float kSmallestNormal = kMantissa == 3 ? 0x1p-6f : 0x1p-14f;
  static GroupScale Fit(const float* x, int n) { return FitSymmetric(x, n, kMax); }
  template <bool>
  static Codes Quantize(__m256 p, __m256) {
    constexpr int kShift = 23 - kMantissa;
    const __m256 magnitude = _mm256_min_ps(Abs(p), _mm256_set1_ps(kMax));
    const __m256i bits = _mm256_castps_si256(magnitude);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, kShift), _mm256_set1_epi32(1));
    const __m256i half = _mm256_set1_epi32((1 << (kShift - 1)) - 1);
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, half), odd), kShift);
    const __m256i normal = _mm256_sub_epi32(rounded, _mm256_set1_epi32((127 - kBias) << kMantissa));
    const __m256i steps =
        _mm256_cvtps_epi32(_mm256_mul_ps(magnitude, _mm256_set1_ps(kStepsPerOne)));
    const __m256 is_small = _mm256_cmp_ps(magnitude, _mm256_set1_ps(kSmallestNormal), _CMP_LT_OQ);
    const __m256i code = _mm256_blendv_epi8(normal, steps, _mm256_castps_si256(is_small));
    const __m256i sign =
        _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(p), 24), _mm256_set1_epi32(0x80));
    return {_mm256_or_si256(code, sign), _mm256_cmpeq_epi32(code, _mm256_set1_epi32(kMaxCode))};
  }
};
using E4m3Quantizer = Fp8Quantizer<3, 7, 0x7E>;
using E5m2Quantizer = Fp8Quantizer<2, 15, 0x7B>;

// ---- rows of bytes ----

__m256 ScaledValues(const float* x, __m256 inverse) {
  const __m256 p = _mm256_mul_ps(_mm256_loadu_ps(x), inverse);
  return _mm256_and_ps(p, _mm256_cmp_ps(p, p, _CMP_ORD_Q));
}

__m128i PackBytes(__m256i a, __m256i b) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xD8);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

// Two 4-bit codes to a byte: the first of `low`, the second, on top, of `high`.
__m128i JoinNibbles(__m128i low, __m128i high) {
  return _mm_or_si128(low, _mm_slli_epi16(high, 4));
}

// 16 channels of four tokens, one byte each, to a line.
void StoreValueLine(const __m128i (&tokens)[4], uint8_t* line) {
  const __m128i low01 = _mm_unpacklo_epi8(tokens[0], tokens[1]);
  const __m128i high01 = _mm_unpackhi_epi8(tokens[0], tokens[1]);
  const __m128i low23 = _mm_unpacklo_epi8(tokens[2], tokens[3]);
  const __m128i high23 = _mm_unpackhi_epi8(tokens[2], tokens[3]);
  __m128i* out = reinterpret_cast<__m128i*>(line);
  _mm_storeu_si128(out, _mm_unpacklo_epi16(low01, low23));
  _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(low01, low23));
  _mm_storeu_si128(out + 2, _mm_unpacklo_epi16(high01, high23));
  _mm_storeu_si128(out + 3, _mm_unpackhi_epi16(high01, high23));
}

// 16-bit formats: no scale.
struct F16 {
  // Eight values; infinities and NaN come through as base/half.h has them.
  static __m128i Bits(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
};
struct Bf16 {
  static __m128i Bits(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i quiet_nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet_nan, is_nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(upper, upper), 0xD8);
    return _mm256_castsi256_si128(packed);
  }
};

// For kernels/encode_tiles.h.
struct Rows {
  using Encoder = TileEncoder<Rows>;
  using GroupScale = avx2::GroupScale;

  template <typename Quantizer, bool kKey>
  static int QuantizeGroup(const float* x, int n, const float* given, const GroupScale& fit,
                           uint8_t* bytes) {
    const __m256 inverse = _mm256_set1_ps(fit.inverse), zero = _mm256_set1_ps(fit.zero);
    __m256i ends = _mm256_setzero_si256();
    for (int c = 0; c < n; c += 16) {
      const __m256 inverse_low = given == nullptr ? inverse : _mm256_load_ps(given + c);
      const __m256 inverse_high = given == nullptr ? inverse : _mm256_load_ps(given + c + 8);
      const Codes low = Quantizer::template Quantize<kKey>(ScaledValues(x + c, inverse_low), zero);
      const Codes high =
          Quantizer::template Quantize<kKey>(ScaledValues(x + c + 8, inverse_high), zero);
      ends = _mm256_sub_epi32(ends, _mm256_add_epi32(low.at_end, high.at_end));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + c), PackBytes(low.stored, high.stored));
    }
    return HorizontalSum(ends);
  }
  static float InverseOf(uint16_t scale) { return Inverse(FromF16(scale)); }

  // Codes of 8 channels in 8 bytes to the 4 bytes of a K lane; in place.
  static void JoinKeyNibbles(uint8_t* row, int head_dim) {
    for (int c = 0; c < head_dim; c += 16) {
      const __m128i codes = LoadBytes16(row + c);  // dwords: low, high, low, high
      const __m128i low = _mm_shuffle_epi32(codes, 0x08);
      const __m128i high = _mm_shuffle_epi32(codes, 0x0D);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(row + c / 2), JoinNibbles(low, high));
    }
  }

  // rows: byte codes of the 4 (8-bit) or 8 (4-bit) tokens of one lane.
  template <int kBits>
  static void StoreValueRows(const Encoder::Row* rows, int head_dim, uint8_t* line) {
    for (int c = 0; c < head_dim; c += kLanes, line += kLineBytes) {
      __m128i tokens[4];
      for (int i = 0; i < 4; ++i) {
        tokens[i] = LoadBytes16(rows[i] + c);
        if constexpr (kBits == 4) tokens[i] = JoinNibbles(tokens[i], LoadBytes16(rows[i + 4] + c));
      }
      StoreValueLine(tokens, line);
    }
  }

  template <typename Half>
  static void ConvertRow(const float* x, int head_dim, uint8_t* row) {
    for (int c = 0; c < head_dim; c += 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(row + 2 * c), Half::Bits(_mm256_loadu_ps(x + c)));
    }
  }

  // Two tokens of 16 channels, 16 bits each, to a line.
  static void StoreValuePairs(const Encoder::Row* rows, int head_dim, uint8_t* line) {
    for (int c = 0; c < head_dim; c += 8, line += kLineBytes / 2) {
      const __m128i first = LoadBytes16(rows[0] + 2 * c);
      const __m128i second = LoadBytes16(rows[1] + 2 * c);
      __m128i* out = reinterpret_cast<__m128i*>(line);
      _mm_storeu_si128(out, _mm_unpacklo_epi16(first, second));
      _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(first, second));
    }
  }
};
using Encoder = Rows::Encoder;

}  // namespace

void EncodeF32(const EncodeArgs& args) { Encoder::EncodeFloats(args); }
void EncodeF16(const EncodeArgs& args) { Encoder::EncodeHalves<F16>(args); }
void EncodeBf16(const EncodeArgs& args) { Encoder::EncodeHalves<Bf16>(args); }
void EncodeInt8(const EncodeArgs& args) { Encoder::EncodeCodes<Int8Quantizer>(args); }
void EncodeFp8E4m3(const EncodeArgs& args) { Encoder::EncodeCodes<E4m3Quantizer>(args); }
void EncodeFp8E5m2(const EncodeArgs& args) { Encoder::EncodeCodes<E5m2Quantizer>(args); }
void EncodeInt4Sym(const EncodeArgs& args) { Encoder::EncodeCodes<Int4Quantizer>(args); }
void EncodeInt4Asym(const EncodeArgs& args) { Encoder::EncodeCodes<Int4AsymQuantizer>(args); }

}  // namespace turboquant::avx2
