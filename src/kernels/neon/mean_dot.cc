#include "kernels/neon/formats.h"
#include "kernels/neon/kernels.h"

namespace turboquant::neon {
namespace {

// Codes of 16 channels as floats.
template <int kBits>
TQ_ALWAYS_INLINE LaneFloats Codes(const uint8_t* codes, int channel) {
  int8x16_t bytes;
  if constexpr (kBits == 8) {
    bytes = vreinterpretq_s8_u8(vld1q_u8(codes + channel));
  } else {
    const uint8x8_t pairs = vld1_u8(codes + channel / 2);  // eight low codes, eight high ones
    const uint8x16_t nibbles = vcombine_u8(vand_u8(pairs, vdup_n_u8(15)), vshr_n_u8(pairs, 4));
    bytes = vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(8));
  }
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}

template <int kBits, int kRows>
TQ_ALWAYS_INLINE void Rows(const MeanDotArgs& args, int first_row) {
  float32x4_t acc[kRows][kQuarters];
  for (auto& row : acc) {
    for (float32x4_t& quarter : row) quarter = Zero();
  }
  const float* q = args.q + Size(first_row) * args.q_stride;
  for (int c = 0; c < args.head_dim; c += 16) {
    const LaneFloats mean = Codes<kBits>(args.codes, c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const float* row = q + Size(r) * args.q_stride + c;
#pragma GCC unroll 4
      for (int i = 0; i < kQuarters; ++i)
        acc[r][i] = vfmaq_f32(acc[r][i], vld1q_f32(row + 4 * i), mean.quarter[i]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    const float32x4_t sum =
        vaddq_f32(vaddq_f32(acc[r][0], acc[r][1]), vaddq_f32(acc[r][2], acc[r][3]));
    args.out[first_row + r] = vaddvq_f32(sum) * args.scale;
  }
}

template <int kBits>
void Dot(const MeanDotArgs& args) {
  ForRowBlocks(args.num_rows,
               [&args]<int kRows>(int first_row) { Rows<kBits, kRows>(args, first_row); });
}

}  // namespace

void MeanDot(const MeanDotArgs& args) { args.mean_bits == 8 ? Dot<8>(args) : Dot<4>(args); }

}  // namespace turboquant::neon
