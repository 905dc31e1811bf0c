// How the lines of the float formats are multiplied: the inner loop shared by QK and PV.
//
// Both products have one shape. For 16 lanes (tokens of K, channels of V) and lines i = 0, 1, ...:
//   acc[row][lane] += sum_j line_i[lane][j] * factor[row][i * codes + j]
// where the factors are the prepared query (QK) or the row of probabilities (PV). A format takes
// code j of all 16 lanes out of a line as four vectors of floats; deinterleaving loads (ld2, ld4)
// do most of that. One widened code serves all rows of a block.
//
//   f32        ld1
//   f16        ld2 of halves, fcvtl
//   bf16       shift and mask: a bf16 is the upper half of a float
//   fp8        ld4 of bytes; widened to f16 as said at the decoders, then fcvtl
#ifndef TURBOQUANT_KERNELS_NEON_FORMATS_H_
#define TURBOQUANT_KERNELS_NEON_FORMATS_H_

#include "kernels/neon/vec.h"

namespace turboquant::neon {

// Sixteen lanes as floats.
struct LaneFloats {
  float32x4_t quarter[kQuarters];
};

struct FloatFormat {
  static constexpr float kProductScale = 1.0f;  // of what the accumulators hold, a power of two
};

struct F32 : FloatFormat {
  static constexpr int kCodes = 1;
  template <int>
  TQ_ALWAYS_INLINE static LaneFloats Code(const uint8_t* line) {
    const auto* x = reinterpret_cast<const float*>(line);
    return {{vld1q_f32(x), vld1q_f32(x + 4), vld1q_f32(x + 8), vld1q_f32(x + 12)}};
  }
};

struct Bf16 : FloatFormat {
  static constexpr int kCodes = 2;
  template <int kCode>
  TQ_ALWAYS_INLINE static LaneFloats Code(const uint8_t* line) {
    const auto* x = reinterpret_cast<const uint32_t*>(line);
    LaneFloats code;
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i) {
      const uint32x4_t pair = vld1q_u32(x + 4 * i);
      const uint32x4_t upper =
          kCode == 0 ? vshlq_n_u32(pair, 16) : vandq_u32(pair, vdupq_n_u32(0xFFFF0000u));
      code.quarter[i] = vreinterpretq_f32_u32(upper);
    }
    return code;
  }
};

// Sixteen halves, the first eight and the others.
TQ_ALWAYS_INLINE LaneFloats WidenHalves(uint16x8_t low, uint16x8_t high) {
  const float16x8_t a = vreinterpretq_f16_u16(low), b = vreinterpretq_f16_u16(high);
  return {{vcvt_f32_f16(vget_low_f16(a)), vcvt_f32_f16(vget_high_f16(a)),
           vcvt_f32_f16(vget_low_f16(b)), vcvt_f32_f16(vget_high_f16(b))}};
}

struct F16 : FloatFormat {
  static constexpr int kCodes = 2;
  template <int kCode>
  TQ_ALWAYS_INLINE static LaneFloats Code(const uint8_t* line) {
    const auto* x = reinterpret_cast<const uint16_t*>(line);
    return WidenHalves(vld2q_u16(x).val[kCode], vld2q_u16(x + 16).val[kCode]);
  }
};

template <typename Decoder>
struct Fp8Format : FloatFormat {
  static constexpr int kCodes = 4;
  static constexpr float kProductScale = Decoder::kValueOfHalf;
  template <int kCode>
  TQ_ALWAYS_INLINE static LaneFloats Code(const uint8_t* line) {
    const uint8x16_t bytes = vld4q_u8(line).val[kCode];
    return WidenHalves(Decoder::Halves(vget_low_u8(bytes)), Decoder::Halves(vget_high_u8(bytes)));
  }
};

// An E5M2 byte is the upper half of an f16.
struct E5m2Decoder {
  static constexpr float kValueOfHalf = 1.0f;
  TQ_ALWAYS_INLINE static uint16x8_t Halves(uint8x8_t bytes) { return vshll_n_u8(bytes, 8); }
};

// E4M3 s eeee mmm brought to f16 s 0eeee mmm0000000 is the value times 2^-8 (biases 7 and 15),
// subnormals included. The arithmetic shift doubles the sign, the mask takes the copy off.
struct E4m3Decoder {
  static constexpr float kValueOfHalf = 256.0f;
  TQ_ALWAYS_INLINE static uint16x8_t Halves(uint8x8_t bytes) {
    const int16x8_t upper = vreinterpretq_s16_u16(vshll_n_u8(bytes, 8));
    return vandq_u16(vreinterpretq_u16_s16(vshrq_n_s16(upper, 1)), vdupq_n_u16(0xBF80));
  }
};
using Fp8E5m2 = Fp8Format<E5m2Decoder>;
using Fp8E4m3 = Fp8Format<E4m3Decoder>;

// ---- the loop over lines ----

inline constexpr int kMaxBlockRows = 4;  // 16 accumulators of the 32 registers

struct LineRange {
  const uint8_t* first;
  size_t stride_bytes;        // from a line to the next
  int num_lines;              // Format::kCodes codes of a lane in each
  uintptr_t prefetch_offset;  // from a line to what is fetched beside it; unused without kPrefetch
};

// Distance to `prefetch` from `lines`, which lies in another allocation; modulo 2^64.
inline uintptr_t PrefetchOffset(const uint8_t* prefetch, const uint8_t* lines) {
  return reinterpret_cast<uintptr_t>(prefetch) - reinterpret_cast<uintptr_t>(lines);
}

template <typename Format, int kRows, int kCode = 0>
TQ_ALWAYS_INLINE void AddLine(const uint8_t* line, const float* factors, size_t row_stride,
                              float32x4_t (&acc)[kRows][kQuarters]) {
  const LaneFloats code = Format::template Code<kCode>(line);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float32x4_t f = vdupq_n_f32(factors[Size(r) * row_stride + kCode]);
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i) acc[r][i] = vfmaq_f32(acc[r][i], code.quarter[i], f);
  }
  if constexpr (kCode + 1 < Format::kCodes)
    AddLine<Format, kRows, kCode + 1>(line, factors, row_stride, acc);
}

template <typename Format, int kRows, bool kPrefetch>
TQ_ALWAYS_INLINE void MultiplyLines(const LineRange& lines, const float* factors, size_t row_stride,
                                    float32x4_t (&acc)[kRows][kQuarters]) {
  const uint8_t* line = lines.first;
  for (int i = 0; i < lines.num_lines; ++i) {
    if constexpr (kPrefetch) {
      __builtin_prefetch(
          reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(line) + lines.prefetch_offset));
    }
    AddLine<Format, kRows>(line, factors, row_stride, acc);
    line += lines.stride_bytes;
    factors += Format::kCodes;
  }
}

// Calls block.operator()<kRows>(first_row) for blocks of at most kMaxBlockRows, as even as
// possible.
template <typename Block>
inline void ForRowBlocks(int num_rows, const Block& block) {
  static_assert(kMaxBlockRows == 4);
  int row = 0;
  for (int blocks = (num_rows + kMaxBlockRows - 1) / kMaxBlockRows; blocks > 0; --blocks) {
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
      default:
        block.template operator()<4>(row);
    }
    row += rows;
  }
}

}  // namespace turboquant::neon

#endif  // TURBOQUANT_KERNELS_NEON_FORMATS_H_
