// Blocks of quantized weights (kernels/matmul.h) as vectors: codes of 32 columns of one output, and
// scales and mins of eight outputs.
#ifndef TURBOQUANT_KERNELS_AVX2_WEIGHT_BLOCKS_H_
#define TURBOQUANT_KERNELS_AVX2_WEIGHT_BLOCKS_H_

#include "kernels/avx2/vec.h"
#include "kernels/matmul.h"

namespace turboquant::avx2 {

TQ_ALWAYS_INLINE int DwordAt(const uint8_t* p) {
  int bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return bits;
}

// Of eight outputs, `stride` bytes apart.
TQ_ALWAYS_INLINE __m256 EightHalves(const uint8_t* p, size_t stride) {
  const auto at = [=](size_t n) {
    short bits;
    __builtin_memcpy(&bits, p + n * stride, sizeof(bits));
    return bits;
  };
  return _mm256_cvtph_ps(_mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
}
// Two halves side by side.
TQ_ALWAYS_INLINE void EightPairs(const uint8_t* p, size_t stride, __m256* first, __m256* second) {
  const auto four = [=](const uint8_t* q) {
    return _mm_setr_epi32(DwordAt(q), DwordAt(q + stride), DwordAt(q + 2 * stride),
                          DwordAt(q + 3 * stride));
  };
  const __m128i low = four(p), high = four(p + 4 * stride), mask = _mm_set1_epi32(0xFFFF);
  *first = _mm256_cvtph_ps(_mm_packus_epi32(_mm_and_si128(low, mask), _mm_and_si128(high, mask)));
  *second = _mm256_cvtph_ps(_mm_packus_epi32(_mm_srli_epi32(low, 16), _mm_srli_epi32(high, 16)));
}

// columns[2i], columns[2i + 1] in the halves of out[i]: bytes 0 .. 7 of eight rows.
TQ_ALWAYS_INLINE void Transpose(const __m128i (&rows)[8], __m128i (&out)[4]) {
  const __m128i t0 = _mm_unpacklo_epi8(rows[0], rows[1]), t1 = _mm_unpacklo_epi8(rows[2], rows[3]);
  const __m128i t2 = _mm_unpacklo_epi8(rows[4], rows[5]), t3 = _mm_unpacklo_epi8(rows[6], rows[7]);
  const __m128i u0 = _mm_unpacklo_epi16(t0, t1), u1 = _mm_unpackhi_epi16(t0, t1);
  const __m128i u2 = _mm_unpacklo_epi16(t2, t3), u3 = _mm_unpackhi_epi16(t2, t3);
  out[0] = _mm_unpacklo_epi32(u0, u2);
  out[1] = _mm_unpackhi_epi32(u0, u2);
  out[2] = _mm_unpacklo_epi32(u1, u3);
  out[3] = _mm_unpackhi_epi32(u1, u3);
}

// Nibbles of 16 bytes: the low ones, then the high ones.
TQ_ALWAYS_INLINE __m256i Nibbles(const uint8_t* p) {
  const __m128i bytes = LoadBytes16(p);
  const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
  return _mm256_and_si256(both, _mm256_set1_epi8(15));
}
// 16 in byte i where bit i is set.
TQ_ALWAYS_INLINE __m256i FifthBits(const uint8_t* p) {
  const __m256i byte_of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                           2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(DwordAt(p)), byte_of);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), bit_of);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}

// What a type is made of.
//   kSigned        codes are s8, else u8
//   kQuadsPerSum   products of so many times four columns can be added in 16 bits
template <WeightType kType>
struct Weights {
  static constexpr WeightLayout kLayout = LayoutOf(kType);
  static constexpr int kSubBlocks = kLayout.columns / kActivationBlock;
  static constexpr bool kSigned = kType == WeightType::kQ8_0;
  static constexpr bool kHasMin = !kSigned;
  static constexpr bool kFiveBits =
      kType == WeightType::kQ5_0 || kType == WeightType::kQ5_1 || kType == WeightType::kQ5K;
  static constexpr int kQuadsPerSum = kSigned ? 1 : kFiveBits ? 4 : 8;

  // Codes of sub-block j.
  TQ_ALWAYS_INLINE static __m256i Codes(const uint8_t* block, [[maybe_unused]] int j) {
    const uint8_t* codes = block + kLayout.codes;
    if constexpr (kType == WeightType::kQ8_0) return LoadBytes(codes);
    if constexpr (kType == WeightType::kQ5_0 || kType == WeightType::kQ5_1) {
      return _mm256_or_si256(Nibbles(codes), FifthBits(codes - 4));
    }
    if constexpr (kSubBlocks == 1) return Nibbles(codes);
    const __m256i bytes = LoadBytes(codes + 32 * (j / 2));
    const __m256i nibbles = _mm256_and_si256(
        _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(4 * (j % 2))), _mm256_set1_epi8(15));
    if constexpr (kType == WeightType::kQ4K) return nibbles;
    const __m256i fifth = _mm256_srl_epi16(LoadBytes(block + 16), _mm_cvtsi32_si128(j));
    return _mm256_or_si256(nibbles,
                           _mm256_slli_epi16(_mm256_and_si256(fifth, _mm256_set1_epi8(1)), 4));
  }

  struct Factors {
    __m256 scales[kSubBlocks];
    __m256 mins[kSubBlocks];
  };
  // Of eight outputs, `stride` bytes apart.
  TQ_ALWAYS_INLINE static void Load(const uint8_t* block, size_t stride, Factors* out) {
    if constexpr (kType == WeightType::kQ4K || kType == WeightType::kQ5K) {
      LoadQ45K(block, stride, out);
    } else if constexpr (kType == WeightType::kQ4_1 || kType == WeightType::kQ5_1) {
      EightPairs(block, stride, &out->scales[0], &out->mins[0]);
    } else {
      constexpr float kOffset = kType == WeightType::kQ4_0 ? -8.0f : -16.0f;
      out->scales[0] = EightHalves(block, stride);
      out->mins[0] = _mm256_mul_ps(out->scales[0], _mm256_set1_ps(kOffset));
    }
  }

 private:
  // Six-bit factors of a block's eight sub-blocks in 8 bytes: of codes, then of mins.
  TQ_ALWAYS_INLINE static __m128i SixBitFactors(const uint8_t* packed) {
    const auto a = static_cast<uint32_t>(DwordAt(packed));
    const auto b = static_cast<uint32_t>(DwordAt(packed + 4));
    const auto c = static_cast<uint32_t>(DwordAt(packed + 8));
    const uint32_t scales_high = (c & 0x0F0F0F0F) | (a >> 6 & 0x03030303) << 4;
    const uint32_t mins_high = (c >> 4 & 0x0F0F0F0F) | (b >> 6 & 0x03030303) << 4;
    return _mm_setr_epi32(static_cast<int>(a & 0x3F3F3F3F), static_cast<int>(scales_high),
                          static_cast<int>(b & 0x3F3F3F3F), static_cast<int>(mins_high));
  }

  TQ_ALWAYS_INLINE static void LoadQ45K(const uint8_t* block, size_t stride, Factors* out) {
    __m256 d, d_min;
    EightPairs(block, stride, &d, &d_min);
    __m128i of_codes[8], of_mins[8], columns[4];
    for (int n = 0; n < 8; ++n) {
      of_codes[n] = SixBitFactors(block + Size(n) * stride + 4);
      of_mins[n] = _mm_unpackhi_epi64(of_codes[n], of_codes[n]);
    }
    const auto floats = [](__m128i bytes) {
      return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
    };
    Transpose(of_codes, columns);
    for (int i = 0; i < 4; ++i) {
      out->scales[2 * i] = _mm256_mul_ps(d, floats(columns[i]));
      out->scales[2 * i + 1] = _mm256_mul_ps(d, floats(_mm_srli_si128(columns[i], 8)));
    }
    Transpose(of_mins, columns);
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (int i = 0; i < 4; ++i) {
      const __m256 even = _mm256_mul_ps(d_min, floats(columns[i]));
      const __m256 odd = _mm256_mul_ps(d_min, floats(_mm_srli_si128(columns[i], 8)));
      out->mins[2 * i] = _mm256_xor_ps(even, sign);
      out->mins[2 * i + 1] = _mm256_xor_ps(odd, sign);
    }
  }
};

}  // namespace turboquant::avx2

#endif  // TURBOQUANT_KERNELS_AVX2_WEIGHT_BLOCKS_H_
