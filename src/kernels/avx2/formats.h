// How the lines of each stored format are multiplied: the inner loop shared by QK and PV.
//
// Both products have one shape. For 16 lanes (tokens of K, channels of V) and lines i = 0, 1, ...:
//   acc[row][lane] += sum_j line_i[lane][j] * factor[row][i][j]
// where the factors are the prepared query (QK) or the row of probabilities (PV). A format says how
// a line is widened, in which order its factors stand, and how accumulators become 16 floats. One
// widened line serves all rows of a block.
//
//   integers   even, then odd codes widened to 16 bits, vpmaddwd with factor pairs (0,2), then
//   (1,3) f16, fp8   vcvtph2ps; a vector holds two codes of four lanes, factors are float pairs;
//   fp8 is
//              first shifted into f16
//   bf16, f32  a vector holds one code of eight lanes
#ifndef TURBOQUANT_KERNELS_AVX2_FORMATS_H_
#define TURBOQUANT_KERNELS_AVX2_FORMATS_H_

#include "kernels/avx2/vec.h"

namespace turboquant::avx2 {

// Sixteen lanes as floats.
struct LaneFloats {
  __m256 low, high;
};

// ---- integers: two accumulators of eight 32-bit lanes per row ----

struct IntegerFormat {
  static constexpr bool kInteger = true;
  static constexpr float kProductScale = 1.0f;  // of what the accumulators hold, a power of two
  static constexpr int kLines = 1;              // that a step of the loop takes
  static constexpr int kUnitLines = 1;          // side by side that count as one
  static constexpr int kAccs = 2;
  static constexpr int kRowsInOnePass = 4;
  using Factor = int16_t;
  using Acc = __m256i;
  static Acc Start(int32_t start) { return _mm256_set1_epi32(start); }
  static LaneFloats Finish(const Acc* acc) {
    return {_mm256_cvtepi32_ps(acc[0]), _mm256_cvtepi32_ps(acc[1])};
  }

  // even, odd: 16-bit codes of lanes 0-7 and 8-15.
  template <int kRows>
  TQ_ALWAYS_INLINE static void Quad(const __m256i* even, const __m256i* odd, const Factor* factors,
                                    size_t row_stride, Acc (&acc)[kRows][kAccs]) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Factor* f = factors + Size(r) * row_stride;
      const __m256i f_even = BroadcastPair(f);
      const __m256i f_odd = BroadcastPair(f + 2);
      acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(even[0], f_even));
      acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(even[1], f_even));
      acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(odd[0], f_odd));
      acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(odd[1], f_odd));
    }
  }

  // One half of that: the even or the odd codes of lanes 0-7 and 8-15. Where Quad does not fit into
  // the registers (int8 V with four rows).
  template <int kRows>
  TQ_ALWAYS_INLINE static void Plane(__m256i low, __m256i high, const Factor* factors,
                                     size_t row_stride, Acc (&acc)[kRows][kAccs]) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i f = BroadcastPair(factors + Size(r) * row_stride);
      acc[r][0] = _mm256_add_epi32(acc[r][0], _mm256_madd_epi16(low, f));
      acc[r][1] = _mm256_add_epi32(acc[r][1], _mm256_madd_epi16(high, f));
    }
  }
};

// K at 8 bits: code + 128.
struct Int8Key : IntegerFormat {
  static constexpr int kCodes = 4;
  static constexpr int kMaxRows = 4;
  static constexpr int kBias = 128;
  static constexpr bool kZeroPoint = false;

  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Line(const uint8_t* line, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
    const __m256i low_byte = _mm256_set1_epi16(0x00FF);
    const __m256i x[2] = {LoadBytes(line), LoadBytes(line + 32)};
    const __m256i even[2] = {_mm256_and_si256(x[0], low_byte), _mm256_and_si256(x[1], low_byte)};
    const __m256i odd[2] = {_mm256_srli_epi16(x[0], 8), _mm256_srli_epi16(x[1], 8)};
    Quad<kRows>(even, odd, factors, row_stride, acc);
  }
};

// V at 8 bits: signed. Widened to 256 times the code, which takes one operation instead of two for
// even bytes; the accumulators hold 256 times the sum, |256 * 127 * 255 * 64| < 2^31.
struct Int8Value : IntegerFormat {
  static constexpr int kCodes = 4;
  static constexpr int kMaxRows = 4;
  static constexpr int kBias = 0;
  static constexpr bool kZeroPoint = false;
  static constexpr float kProductScale = 0x1p-8f;

  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Line(const uint8_t* line, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
    const __m256i high_byte = _mm256_set1_epi16(static_cast<int16_t>(0xFF00));
    const __m256i x[2] = {LoadBytes(line), LoadBytes(line + 32)};
    Plane<kRows>(_mm256_slli_epi16(x[0], 8), _mm256_slli_epi16(x[1], 8), factors, row_stride, acc);
    Plane<kRows>(_mm256_and_si256(x[0], high_byte), _mm256_and_si256(x[1], high_byte), factors + 2,
                 row_stride, acc);
  }
};

// Codes of 4 bits with a bias, in two planes.
template <int kCodeBias, bool kHasZeroPoint>
struct NibbleKey : IntegerFormat {
  static constexpr int kCodes = 8;
  static constexpr int kMaxRows = 4;
  static constexpr int kBias = kCodeBias;
  static constexpr bool kZeroPoint = kHasZeroPoint;

  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Line(const uint8_t* line, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
    const __m256i nibble = _mm256_set1_epi16(0x000F);
    const __m256i x[2] = {LoadBytes(line), LoadBytes(line + 32)};
    {
      const __m256i even[2] = {_mm256_and_si256(x[0], nibble), _mm256_and_si256(x[1], nibble)};
      const __m256i odd[2] = {_mm256_and_si256(_mm256_srli_epi16(x[0], 8), nibble),
                              _mm256_and_si256(_mm256_srli_epi16(x[1], 8), nibble)};
      Quad<kRows>(even, odd, factors, row_stride, acc);
    }
    const __m256i even[2] = {_mm256_and_si256(_mm256_srli_epi16(x[0], 4), nibble),
                             _mm256_and_si256(_mm256_srli_epi16(x[1], 4), nibble)};
    const __m256i odd[2] = {_mm256_srli_epi16(x[0], 12), _mm256_srli_epi16(x[1], 12)};
    Quad<kRows>(even, odd, factors + 4, row_stride, acc);
  }
};
using Int4Key = NibbleKey<8, false>;
using Int4AsymKey = NibbleKey<0, true>;

// V of 4 bits against 8-bit p: vpmaddubsw takes bytes, 32 products at once. The 16-bit sums of two
// lines hold: 8 products of at most 255 * 15 are 30600 < 2^15.
template <int kCodeBias, bool kHasZeroPoint>
struct NibbleValue : IntegerFormat {
  using Factor = uint8_t;
  static constexpr int kLines = 2;
  static constexpr int kCodes = 16;
  static constexpr int kMaxRows = 4;
  static constexpr int kBias = kCodeBias;
  static constexpr bool kZeroPoint = kHasZeroPoint;

  template <int kRows>
  TQ_ALWAYS_INLINE static void LinePair(const uint8_t* first, const uint8_t* second,
                                        const Factor* factors, size_t row_stride,
                                        Acc (&acc)[kRows][kAccs]) {
    const __m256i nibble = _mm256_set1_epi8(0x0F);
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256i a = LoadBytes(first + 32 * half), b = LoadBytes(second + 32 * half);
      const __m256i codes[4] = {
          _mm256_and_si256(a, nibble), _mm256_and_si256(_mm256_srli_epi16(a, 4), nibble),
          _mm256_and_si256(b, nibble), _mm256_and_si256(_mm256_srli_epi16(b, 4), nibble)};
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Factor* f = factors + Size(r) * row_stride;
        __m256i sum = _mm256_maddubs_epi16(BroadcastQuad(f), codes[0]);
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(BroadcastQuad(f + 4), codes[1]));
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(BroadcastQuad(f + 8), codes[2]));
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(BroadcastQuad(f + 12), codes[3]));
        acc[r][half] = _mm256_add_epi32(acc[r][half], _mm256_madd_epi16(sum, ones));
      }
    }
  }
};
using Int4Value = NibbleValue<8, false>;
using Int4AsymValue = NibbleValue<0, true>;

// ---- floats ----

struct FloatFormat {
  static constexpr bool kInteger = false;
  static constexpr int kLines = 1;
  static constexpr int kUnitLines = 1;
  static constexpr int kBias = 0;
  static constexpr bool kZeroPoint = false;
  using Factor = float;
  using Acc = __m256;
  static Acc Start(int32_t) { return _mm256_setzero_ps(); }
};

// Eight lanes to a vector: two accumulators per row.
struct WideFloatFormat : FloatFormat {
  static constexpr int kAccs = 2;
  static constexpr int kMaxRows = 4;
  static constexpr int kRowsInOnePass = 4;
  static LaneFloats Finish(const Acc* acc) { return {acc[0], acc[1]}; }

  template <int kRows>
  TQ_ALWAYS_INLINE static void Code(const __m256* code, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256 f = _mm256_set1_ps(factors[Size(r) * row_stride]);
      acc[r][0] = _mm256_fmadd_ps(code[0], f, acc[r][0]);
      acc[r][1] = _mm256_fmadd_ps(code[1], f, acc[r][1]);
    }
  }
};

struct F32 : WideFloatFormat {
  static constexpr int kCodes = 1;

  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Line(const uint8_t* line, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
    const __m256 code[2] = {_mm256_castsi256_ps(LoadBytes(line)),
                            _mm256_castsi256_ps(LoadBytes(line + 32))};
    Code<kRows>(code, factors, row_stride, acc);
  }
};

struct Bf16 : WideFloatFormat {
  static constexpr int kCodes = 2;

  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Line(const uint8_t* line, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
    const __m256i upper_half = _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
    const __m256i x[2] = {LoadBytes(line), LoadBytes(line + 32)};
    const __m256 first[2] = {_mm256_castsi256_ps(_mm256_slli_epi32(x[0], 16)),
                             _mm256_castsi256_ps(_mm256_slli_epi32(x[1], 16))};
    Code<kRows>(first, factors, row_stride, acc);
    const __m256 second[2] = {_mm256_castsi256_ps(_mm256_and_si256(x[0], upper_half)),
                              _mm256_castsi256_ps(_mm256_and_si256(x[1], upper_half))};
    Code<kRows>(second, factors + 1, row_stride, acc);
  }
};

// Two codes of four lanes to a vector: four accumulators per row, neighbours added at the end. With
// three rows and more the registers hold only half a line's accumulators: two passes over the
// lines, of two accumulators per row each. Every accumulator still adds its lines in the same
// order, so that the number of rows does not show in the result.
struct PairFloatFormat : FloatFormat {
  static constexpr int kAccs = 4;
  static constexpr int kMaxRows = 6;  // 12 accumulators of the 16 registers
  static constexpr int kRowsInOnePass = 2;

  static __m256 AddNeighbours(__m256 a, __m256 b) {
    const __m256d sums = _mm256_castps_pd(_mm256_hadd_ps(a, b));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0xD8));
  }
  static LaneFloats Finish(const Acc* acc) {
    return {AddNeighbours(acc[0], acc[1]), AddNeighbours(acc[2], acc[3])};
  }

  // Quarters of a line that a pass covers: [First, Last).
  template <int kRows, int kPass>
  static constexpr int kFirst = 2 * kPass;
  template <int kRows, int kPass>
  static constexpr int kLast = kRows <= kRowsInOnePass ? 4 : 2 * kPass + 2;

  // codes: one vector per quarter, [kFirst, kLast).
  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Pairs(const __m256 (&codes)[4], const Factor* factors,
                                     size_t row_stride, Acc (&acc)[kRows][kAccs]) {
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m256 f = BroadcastPair(factors + Size(r) * row_stride);
#pragma GCC unroll 4
      for (int quarter = kFirst<kRows, kPass>; quarter < kLast<kRows, kPass>; ++quarter) {
        acc[r][quarter] = _mm256_fmadd_ps(codes[quarter], f, acc[r][quarter]);
      }
    }
  }
};

struct F16 : PairFloatFormat {
  static constexpr int kCodes = 2;

  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Line(const uint8_t* line, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
    __m256 codes[4];
#pragma GCC unroll 4
    for (int quarter = kFirst<kRows, kPass>; quarter < kLast<kRows, kPass>; ++quarter) {
      codes[quarter] = _mm256_cvtph_ps(LoadBytes16(line + 16 * quarter));
    }
    Pairs<kRows, kPass>(codes, factors, row_stride, acc);
  }
};

// FP8: codes (0,2) and (1,3) of every lane become f16 pairs.
template <typename Decoder>
struct Fp8Format : PairFloatFormat {
  static constexpr int kCodes = 4;

  template <int kRows, int kPass>
  TQ_ALWAYS_INLINE static void Line(const uint8_t* line, const Factor* factors, size_t row_stride,
                                    Acc (&acc)[kRows][kAccs]) {
    __m256 codes[4];
#pragma GCC unroll 4
    for (int quarter = kFirst<kRows, kPass>; quarter < kLast<kRows, kPass>; ++quarter) {
      codes[quarter] = _mm256_cvtph_ps(Decoder::EvenHalves(LoadBytes16(line + 16 * quarter)));
    }
    Pairs<kRows, kPass>(codes, factors, row_stride, acc);
#pragma GCC unroll 4
    for (int quarter = kFirst<kRows, kPass>; quarter < kLast<kRows, kPass>; ++quarter) {
      codes[quarter] = _mm256_cvtph_ps(Decoder::OddHalves(LoadBytes16(line + 16 * quarter)));
    }
    Pairs<kRows, kPass>(codes, factors + 2, row_stride, acc);
  }

  static LaneFloats Finish(const Acc* acc) {
    const LaneFloats sums = PairFloatFormat::Finish(acc);
    const __m256 scale = _mm256_set1_ps(Decoder::kValueOfHalf);
    return {_mm256_mul_ps(sums.low, scale), _mm256_mul_ps(sums.high, scale)};
  }
};

// An E5M2 byte is the upper half of an f16.
struct E5m2Decoder {
  static constexpr float kValueOfHalf = 1.0f;
  static __m128i EvenHalves(__m128i x) { return _mm_slli_epi16(x, 8); }
  static __m128i OddHalves(__m128i x) {
    return _mm_and_si128(x, _mm_set1_epi16(static_cast<int16_t>(0xFF00)));
  }
};

// E4M3 s eeee mmm brought to f16 s 0eeee mmm0000000 is the value times 2^-8 (biases 7 and 15),
// subnormals included. The arithmetic shift doubles the sign, the mask takes the copy off.
struct E4m3Decoder {
  static constexpr float kValueOfHalf = 256.0f;
  static __m128i OddHalves(__m128i x) {
    return _mm_and_si128(_mm_srai_epi16(x, 1), _mm_set1_epi16(static_cast<int16_t>(0xBF80)));
  }
  static __m128i EvenHalves(__m128i x) { return OddHalves(_mm_slli_epi16(x, 8)); }
};
using Fp8E5m2 = Fp8Format<E5m2Decoder>;
using Fp8E4m3 = Fp8Format<E4m3Decoder>;

// ---- the loop over lines ----

struct LineRange {
  const uint8_t* first;
  size_t stride_bytes;        // from a line or unit of lines to the next
  int num_steps;              // of Format::kLines lines (or units), Format::kCodes codes of a lane
  ptrdiff_t prefetch_offset;  // from a line to what is fetched beside it; unused without kPrefetch
};

template <typename Format, int kRows, int kPass, bool kPrefetch>
TQ_ALWAYS_INLINE void OnePass(const LineRange& lines, const typename Format::Factor* factors,
                              size_t row_stride,
                              typename Format::Acc (&acc)[kRows][Format::kAccs]) {
  const uint8_t* line = lines.first;
  for (int i = 0; i < lines.num_steps; ++i) {
    if constexpr (kPrefetch) {
      const uintptr_t address =
          reinterpret_cast<uintptr_t>(line) + static_cast<uintptr_t>(lines.prefetch_offset);
#pragma GCC unroll 5
      for (int unit_line = 0; unit_line < Format::kUnitLines; ++unit_line) {
        _mm_prefetch(reinterpret_cast<const char*>(address) + unit_line * kLineBytes, _MM_HINT_T0);
      }
      if constexpr (Format::kLines == 2) {
        _mm_prefetch(reinterpret_cast<const char*>(address + lines.stride_bytes), _MM_HINT_T0);
      }
    }
    if constexpr (Format::kLines == 2) {
      Format::template LinePair<kRows>(line, line + lines.stride_bytes, factors, row_stride, acc);
    } else {
      Format::template Line<kRows, kPass>(line, factors, row_stride, acc);
    }
    line += lines.stride_bytes * Format::kLines;
    factors += Format::kCodes;
  }
}

template <typename Format, int kRows, bool kPrefetch>
TQ_ALWAYS_INLINE void MultiplyLines(const LineRange& lines, const typename Format::Factor* factors,
                                    size_t row_stride,
                                    typename Format::Acc (&acc)[kRows][Format::kAccs]) {
  OnePass<Format, kRows, 0, kPrefetch>(lines, factors, row_stride, acc);
  if constexpr (kRows > Format::kRowsInOnePass)
    OnePass<Format, kRows, 1, false>(lines, factors, row_stride, acc);
}

// Calls block.operator()<kRows>(first_row) for row blocks of at most kMaxRows, as even as possible.
template <int kMaxRows, typename Block>
inline void ForRowBlocks(int num_rows, const Block& block) {
  static_assert(kMaxRows == 4 || kMaxRows == 6);
  int row = 0;
  for (int blocks = (num_rows + kMaxRows - 1) / kMaxRows; blocks > 0; --blocks) {
    const int rows = (num_rows - row + blocks - 1) / blocks;
    switch (rows) {
      case 1:
        block.template operator()<1>(row);
        break;
      case 2:
        block.template operator()<2>(row);
        break;
      case 3:
        block.template operator()<3>(row);
        break;
      case 4:
        block.template operator()<4>(row);
        break;
      default:
        if constexpr (kMaxRows == 6) {
          rows == 5 ? block.template operator()<5>(row) : block.template operator()<6>(row);
        }
    }
    row += rows;
  }
}

}  // namespace turboquant::avx2

#endif  // TURBOQUANT_KERNELS_AVX2_FORMATS_H_
