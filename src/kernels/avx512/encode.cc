// Encoding, bit for bit as codec/tile.cc does it. 16 tokens at a time: their codes go token by
// token into a buffer, then the buffer is turned into lines.
#include "kernels/avx512/kernels.h"
#include "kernels/avx512/lines.h"

namespace turboquant::avx512 {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr float kMaxF16 = 65504.0f;

// 1 / scale and zero point of every channel of one token.
struct ChannelScales {
  alignas(64) float inv_scale[kMaxHeadDim];
  alignas(64) float zero_point[kMaxHeadDim];
};

TURBOQUANT_INLINE uint16_t ToF16(float x) {
  return static_cast<uint16_t>(_mm_extract_epi16(
      _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), 0));
}
TURBOQUANT_INLINE float FromF16(uint16_t x) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(x)));
}

TURBOQUANT_INLINE __m512 Infinity() { return _mm512_set1_ps(kInfinity); }

// x * inv_scale, NaN becomes 0.
TURBOQUANT_INLINE __m512 Scaled(__m512 x, __m512 inv_scale) {
  const __m512 p = _mm512_mul_ps(x, inv_scale);
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(p, p, _CMP_ORD_Q), p);
}

TURBOQUANT_INLINE __m512 Clamp(__m512 x, float low, float high) {
  return _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(low)), _mm512_set1_ps(high));
}

// f16 scale of a group under which its largest finite |x| becomes max_code.
uint16_t SymmetricScale(const float* x, int n, float max_code) {
  __m512 max = _mm512_setzero_ps();
  for (int c = 0; c < n; c += kLanes) {
    const __m512 a = _mm512_abs_ps(_mm512_loadu_ps(x + c));
    max = _mm512_mask_max_ps(max, _mm512_cmp_ps_mask(a, Infinity(), _CMP_LT_OQ), max, a);
  }
  const float scale = Max(max) / max_code;
  return ToF16(scale < kMaxF16 ? scale : kMaxF16);
}

// The formats: type of a code, codes per lane, the largest code (0: no dynamic scale) and the
// stored bits of 16 values. `ends` tells which are at the ends of the range.
struct CodedBits {
  __m512i bits;
  __mmask16 ends;
};

struct FormatF32 {
  using Code = uint32_t;
  static constexpr int kBits = 32;
  static TURBOQUANT_INLINE CodedBits Encode(__m512 x, __m512, __m512, KvSide) {
    return {_mm512_castps_si512(x), 0};
  }
  static uint16_t Fit(const float*, int, uint16_t*) { return 0; }
};

struct FormatF16 {
  using Code = uint16_t;
  static constexpr int kBits = 16;
  static TURBOQUANT_INLINE CodedBits Encode(__m512 x, __m512, __m512, KvSide) {
    return {
        _mm512_cvtepu16_epi32(_mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
        0};
  }
  static uint16_t Fit(const float*, int, uint16_t*) { return 0; }
};

struct FormatBf16 {
  using Code = uint16_t;
  static constexpr int kBits = 16;
  static TURBOQUANT_INLINE CodedBits Encode(__m512 x, __m512, __m512, KvSide) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return {_mm512_srli_epi32(_mm512_mask_mov_epi32(rounded, nan, quiet), 16), 0};
  }
  static uint16_t Fit(const float*, int, uint16_t*) { return 0; }
};

struct FormatInt8 {
  using Code = uint8_t;
  static constexpr int kBits = 8;
  static TURBOQUANT_INLINE CodedBits Encode(__m512 x, __m512 inv_scale, __m512, KvSide side) {
    const __m512i code = _mm512_cvtps_epi32(Clamp(Scaled(x, inv_scale), -127.0f, 127.0f));
    const __mmask16 ends = _mm512_cmpeq_epi32_mask(_mm512_abs_epi32(code), _mm512_set1_epi32(127));
    return {_mm512_add_epi32(code, _mm512_set1_epi32(side == KvSide::kKey ? 128 : 0)), ends};
  }
  static uint16_t Fit(const float* x, int n, uint16_t*) { return SymmetricScale(x, n, 127.0f); }
};

struct FormatInt4 {
  using Code = uint8_t;
  static constexpr int kBits = 4;
  static TURBOQUANT_INLINE CodedBits Encode(__m512 x, __m512 inv_scale, __m512, KvSide) {
    const __m512i code = _mm512_cvtps_epi32(Clamp(Scaled(x, inv_scale), -7.0f, 7.0f));
    const __mmask16 ends = _mm512_cmpeq_epi32_mask(_mm512_abs_epi32(code), _mm512_set1_epi32(7));
    return {_mm512_add_epi32(code, _mm512_set1_epi32(8)), ends};
  }
  static uint16_t Fit(const float* x, int n, uint16_t*) { return SymmetricScale(x, n, 7.0f); }
};

struct FormatInt4Asym {
  using Code = uint8_t;
  static constexpr int kBits = 4;
  static TURBOQUANT_INLINE CodedBits Encode(__m512 x, __m512 inv_scale, __m512 zero_point, KvSide) {
    const __m512 shifted = _mm512_add_ps(Scaled(x, inv_scale), zero_point);
    const __m512i code = _mm512_cvtps_epi32(Clamp(shifted, 0.0f, 15.0f));
    const __mmask16 ends =
        _mm512_testn_epi32_mask(code, code) | _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(15));
    return {code, ends};
  }
  // Minimum and maximum over the finite values; a constant group keeps its value by a zero point of
  // -+1.
  static uint16_t Fit(const float* x, int n, uint16_t* zero_point) {
    __m512 min = Infinity();
    __m512 negated_max = Infinity();
    for (int c = 0; c < n; c += kLanes) {
      const __m512 v = _mm512_loadu_ps(x + c);
      const __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(v), Infinity(), _CMP_LT_OQ);
      min = _mm512_mask_min_ps(min, finite, min, v);
      negated_max = _mm512_mask_min_ps(negated_max, finite, negated_max, Negate(v));
    }
    float low = -Max(Negate(min));
    float high = Max(Negate(negated_max));
    if (low > high) low = high = 0;  // nothing finite
    const float range = high - low;
    const float ideal = range > 0 ? range / 15.0f : __builtin_fabsf(low);
    const uint16_t stored = ToF16(ideal < kMaxF16 ? ideal : kMaxF16);
    const float scale = FromF16(stored);
    const float zero = scale > 0 ? (0.0f - low) / scale : 0.0f;
    *zero_point = ToF16(zero < -kMaxF16 ? -kMaxF16 : (zero > kMaxF16 ? kMaxF16 : zero));
    return stored;
  }
  static TURBOQUANT_INLINE __m512 Negate(__m512 x) {
    return _mm512_castsi512_ps(
        _mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi32(INT32_MIN)));
  }
};

// FP8 with the given exponent bias and mantissa bits. Below the smallest normal number codes count
// subnormal steps; the product with a power of two is exact. Above, the mantissa is rounded in the
// bits of the f32.
template <int kMantissa, int kExponentBias, int kMaxCode>
struct FormatFp8 {
  using Code = uint8_t;
  static constexpr int kBits = 8;
  static constexpr int kShift = 23 - kMantissa;
  static constexpr float kMax = kMantissa == 3 ? 448.0f : 57344.0f;
  static constexpr float kSmallestNormal = kMantissa == 3 ? 0x1p-6f : 0x1p-14f;
  static constexpr float kStepsPerUnit = kMantissa == 3 ? 0x1p9f : 0x1p16f;
  static TURBOQUANT_INLINE CodedBits Encode(__m512 x, __m512 inv_scale, __m512, KvSide) {
    const __m512 scaled = Scaled(x, inv_scale);
    const __m512 magnitude = _mm512_min_ps(_mm512_abs_ps(scaled), _mm512_set1_ps(kMax));
    const __m512i bits = _mm512_castps_si512(magnitude);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, kShift), _mm512_set1_epi32(1));
    const __m512i half = _mm512_set1_epi32((1 << (kShift - 1)) - 1);
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, half), odd), kShift);
    const __m512i normal =
        _mm512_sub_epi32(rounded, _mm512_set1_epi32((127 - kExponentBias) << kMantissa));
    const __m512i steps =
        _mm512_cvtps_epi32(_mm512_mul_ps(magnitude, _mm512_set1_ps(kStepsPerUnit)));
    const __mmask16 subnormal =
        _mm512_cmp_ps_mask(magnitude, _mm512_set1_ps(kSmallestNormal), _CMP_LT_OQ);
    const __m512i code = _mm512_mask_mov_epi32(normal, subnormal, steps);
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(scaled), 24),
                                          _mm512_set1_epi32(0x80));
    return {_mm512_or_si512(code, sign),
            _mm512_cmpeq_epi32_mask(code, _mm512_set1_epi32(kMaxCode))};
  }
  static uint16_t Fit(const float* x, int n, uint16_t*) { return SymmetricScale(x, n, kMax); }
};

template <typename Code>
using CodeRows = Code[kLanes][kMaxHeadDim];

TURBOQUANT_INLINE void StoreCodes(__m512i bits, uint32_t* out) { _mm512_storeu_si512(out, bits); }
TURBOQUANT_INLINE void StoreCodes(__m512i bits, uint16_t* out) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(bits));
}
TURBOQUANT_INLINE void StoreCodes(__m512i bits, uint8_t* out) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(bits));
}

TURBOQUANT_INLINE __m512i LoadCodes(const uint32_t* in) { return _mm512_loadu_si512(in); }
TURBOQUANT_INLINE __m512i LoadCodes(const uint16_t* in) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(in)));
}
TURBOQUANT_INLINE __m512i LoadCodes(const uint8_t* in) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
}

// K: a lane is a token, so that a line collects one dword of every row (two for 4-bit codes, as two
// planes).
template <typename Format>
void KeyLines(const CodeRows<typename Format::Code>& codes, int head_dim, uint8_t* lines) {
  constexpr int kRowBytes = sizeof(codes[0]);
  const __m512i rows =
      _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_epi32(kRowBytes));
  const auto* base = reinterpret_cast<const uint8_t*>(codes);
  for (int line = 0; line < head_dim * Format::kBits / 32; ++line) {
    __m512i bits;
    if constexpr (Format::kBits == 4) {
      const __m512i low = _mm512_i32gather_epi32(rows, base + 8 * line, 1);
      const __m512i high = _mm512_i32gather_epi32(rows, base + 8 * line + 4, 1);
      bits = _mm512_or_si512(low, _mm512_slli_epi32(high, 4));
    } else {
      bits = _mm512_i32gather_epi32(rows, base + 4 * line, 1);
    }
    _mm512_store_si512(lines + static_cast<size_t>(line) * kLineBytes, bits);
  }
}

// V: a lane is a channel and holds the codes of consecutive tokens.
template <typename Format>
void ValueLines(const CodeRows<typename Format::Code>& codes, int head_dim, uint8_t* lines) {
  constexpr int kCodes = 32 / Format::kBits;
  for (int token = 0; token < kLanes; token += kCodes) {
    for (int c = 0; c < head_dim; c += kLanes, lines += kLineBytes) {
      __m512i bits = LoadCodes(codes[token] + c);
      for (int i = 1; i < kCodes; ++i) {
        const int shift = Format::kBits == 4 ? i % 4 * 8 + i / 4 * 4 : i * Format::kBits;
        bits = _mm512_or_si512(
            bits, _mm512_sll_epi32(LoadCodes(codes[token + i] + c), _mm_cvtsi32_si128(shift)));
      }
      _mm512_store_si512(lines, bits);
    }
  }
}

TURBOQUANT_INLINE float InverseScale(float scale) { return scale > 0 ? 1.0f / scale : 0.0f; }

TURBOQUANT_INLINE void Fill(float* out, int n, float value) {
  for (int c = 0; c < n; c += kLanes) _mm512_store_ps(out + c, _mm512_set1_ps(value));
}

void StaticScales(const EncodeArgs& args, ChannelScales& scales) {
  const int head_dim = args.shape.head_dim;
  Fill(scales.zero_point, head_dim, 0.0f);
  if (args.spec.granularity == ScaleGranularity::kNone) {
    Fill(scales.inv_scale, head_dim, 1.0f);
  } else if (args.static_scales.channels == nullptr) {
    Fill(scales.inv_scale, head_dim, InverseScale(args.static_scales.head));
  } else {
    for (int c = 0; c < head_dim; c += kLanes) {
      const __m512 scale = _mm512_loadu_ps(args.static_scales.channels + c);
      const __mmask16 positive = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_GT_OQ);
      _mm512_store_ps(scales.inv_scale + c,
                      _mm512_maskz_div_ps(positive, _mm512_set1_ps(1.0f), scale));
    }
  }
}

// The scale of one token that was fitted before (per_token_head_u8).
void GivenScale(const EncodeArgs& args, int token, ChannelScales& scales) {
  Fill(scales.inv_scale, args.shape.head_dim, InverseScale(FromF16(args.scales[token])));
  Fill(scales.zero_point, args.shape.head_dim, 0.0f);
}

// Fits and stores the scales of one token.
template <typename Format>
void DynamicScales(const EncodeArgs& args, int token, int group_size, ChannelScales& scales) {
  const float* row = args.x + static_cast<size_t>(token) * static_cast<size_t>(args.shape.head_dim);
  for (int c = 0; c < args.shape.head_dim; c += group_size) {
    uint16_t zero_point = 0;
    const uint16_t scale = Format::Fit(row + c, group_size, &zero_point);
    const size_t at =
        static_cast<size_t>(c / group_size) * static_cast<size_t>(args.shape.num_tokens) +
        static_cast<size_t>(token);
    args.scales[at] = scale;
    if (args.spec.dtype == KvCacheDtype::kInt4Asym) args.zero_points[at] = zero_point;
    Fill(scales.inv_scale + c, group_size, InverseScale(FromF16(scale)));
    Fill(scales.zero_point + c, group_size, FromF16(zero_point));
  }
}

template <typename Format>
void Encode(const EncodeArgs& args) {
  const auto [side, num_tokens, head_dim] = args.shape;
  const bool per_group = args.spec.granularity == ScaleGranularity::kPerGroup;
  const bool given = args.spec.granularity == ScaleGranularity::kPerTokenHeadU8;
  const bool dynamic = per_group || args.spec.granularity == ScaleGranularity::kPerTokenHead;
  const int group_size = per_group ? args.spec.group_size : head_dim;
  ChannelScales scales;
  if (!dynamic && !given) StaticScales(args, scales);
  CodeRows<typename Format::Code> codes;
  int64_t end_codes = 0;
  for (int first = 0; first < num_tokens; first += kLanes) {
    for (int t = 0; t < kLanes; ++t) {
      if (given) GivenScale(args, first + t, scales);
      if (dynamic) DynamicScales<Format>(args, first + t, group_size, scales);
      const float* row = args.x + static_cast<size_t>(first + t) * static_cast<size_t>(head_dim);
      for (int c = 0; c < head_dim; c += kLanes) {
        const CodedBits coded =
            Format::Encode(_mm512_loadu_ps(row + c), _mm512_load_ps(scales.inv_scale + c),
                           _mm512_load_ps(scales.zero_point + c), side);
        StoreCodes(coded.bits, codes[t] + c);
        end_codes += __builtin_popcount(coded.ends);
      }
    }
    uint8_t* lines =
        args.lines + static_cast<size_t>(first) * static_cast<size_t>(head_dim) * Format::kBits / 8;
    if (side == KvSide::kKey) {
      KeyLines<Format>(codes, head_dim, lines);
    } else {
      ValueLines<Format>(codes, head_dim, lines);
    }
  }
  if (args.end_codes != nullptr) *args.end_codes += end_codes;
}

}  // namespace

void EncodeF32(const EncodeArgs& args) { Encode<FormatF32>(args); }
void EncodeF16(const EncodeArgs& args) { Encode<FormatF16>(args); }
void EncodeBf16(const EncodeArgs& args) { Encode<FormatBf16>(args); }
void EncodeInt8(const EncodeArgs& args) { Encode<FormatInt8>(args); }
void EncodeFp8E4m3(const EncodeArgs& args) { Encode<FormatFp8<3, 7, 0x7E>>(args); }
void EncodeFp8E5m2(const EncodeArgs& args) { Encode<FormatFp8<2, 15, 0x7B>>(args); }
void EncodeInt4Sym(const EncodeArgs& args) { Encode<FormatInt4>(args); }
void EncodeInt4Asym(const EncodeArgs& args) { Encode<FormatInt4Asym>(args); }

}  // namespace turboquant::avx512
