// PV of an integer format: Pv<Products, Format> (formats.h).
#ifndef TURBOQUANT_KERNELS_NEONINT_PV_H_
#define TURBOQUANT_KERNELS_NEONINT_PV_H_

#include "kernels/kernel_table.h"
#include "kernels/neonint/formats.h"

namespace turboquant::TQ_FOLDER {

// Probabilities of a block of rows over one channel group, V scales folded in.
template <int kRows>
struct BlockP {
  alignas(16) uint8_t codes[kRows][kMaxTileTokens];
  float step[kRows];         // value of one code step; 0: the row is empty
  int32_t sum[kRows];        // of the codes
  float zero_points[kRows];  // int4_asym: sum of code * zero point
};

// p with the scales folded in, four tokens.
inline float32x4_t FoldScales(const PvArgs& args, const float* p, size_t scale_index, int token) {
  const float32x4_t pv = vld1q_f32(p + token);
  if (args.scales == nullptr) return pv;
  return vmulq_f32(pv, LoadHalves(args.scales + scale_index + Size(token)));
}

template <typename Format, int kRows>
TQ_ALWAYS_INLINE void QuantizeRow(const PvArgs& args, const float* p, size_t scale_index, int r,
                                  BlockP<kRows>& out) {
  float folded[kMaxTileTokens];
  float32x4_t max = vdupq_n_f32(0.0f);
  for (int t = 0; t < args.num_tokens; t += 4) {
    const float32x4_t pv = FoldScales(args, p, scale_index, t);
    vst1q_f32(folded + t, pv);
    max = vmaxnmq_f32(max, pv);  // passes over a NaN
  }
  const float largest = vmaxnmvq_f32(max);
  const bool empty = largest < kTinyMax;
  out.step[r] = empty ? 0.0f : largest / 255.0f;
  const float32x4_t inverse = vdupq_n_f32(empty ? 0.0f : 255.0f / largest);
  int32x4_t sum = vdupq_n_s32(0);
  float32x4_t zero_points = vdupq_n_f32(0.0f);
  for (int t = 0; t < args.num_tokens; t += 4) {
    // The conversion turns a NaN into 0.
    const int32x4_t codes = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(folded + t), inverse));
    sum = vaddq_s32(sum, codes);
    const int16x4_t words = vmovn_s32(codes);
    const uint8x8_t bytes = vqmovun_s16(vcombine_s16(words, words));
    vst1_lane_u32(reinterpret_cast<uint32_t*>(out.codes[r] + t), vreinterpret_u32_u8(bytes), 0);
    if constexpr (Format::kZeroPoint) {
      const float32x4_t zp = LoadHalves(args.zero_points + scale_index + Size(t));
      zero_points = vfmaq_f32(zero_points, vcvtq_f32_s32(codes), zp);
    }
  }
  out.sum[r] = vaddvq_s32(sum);
  out.zero_points[r] = vaddvq_f32(zero_points);
}

// out = out * rescale + (acc - zero point term) * step, 16 channels of every row.
template <typename Format, int kRows, typename Sums>
TQ_ALWAYS_INLINE void AddColumn(const PvArgs& args, const BlockP<kRows>& p, int first_row,
                                int channel, const Sums& sums) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* out = args.out + Size(first_row + r) * Size(args.head_dim) + channel;
    const float32x4_t rescale = vdupq_n_f32(args.rescale[first_row + r]);
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i, out += 4) {
      float32x4_t term = vcvtq_f32_s32(sums.Quarter(r, i));
      if constexpr (Format::kZeroPoint) term = vsubq_f32(term, vdupq_n_f32(p.zero_points[r]));
      term = vmulq_f32(term, vdupq_n_f32(p.step[r]));
      vst1q_f32(out, vaddq_f32(vmulq_f32(vld1q_f32(out), rescale), term));
    }
  }
}

template <typename Products, typename Format, int kRows, bool kPrefetch>
void PvBlock(const PvArgs& args, int first_row) {
  BlockP<kRows> p;
  const FactorRows<uint8_t> factors = {p.codes[0], kMaxTileTokens, 0};
  UnitRange units = {args.v, Size(args.head_dim / kLanes) * kUnitBytes<Format>,
                     args.num_tokens / kCodesPerUnit<Format>,
                     kPrefetch ? PrefetchOffset(args.prefetch, args.v) : 0};
  for (int group = 0; group * args.group_size < args.head_dim; ++group) {
    for (int r = 0; r < kRows; ++r) {
      QuantizeRow<Format, kRows>(args, args.p + Size(first_row + r) * kMaxTileTokens,
                                 Size(group) * Size(args.scale_stride), r, p);
    }
    int32_t start[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) start[r] = -Format::kBias * p.sum[r];
    const int end = (group + 1) * args.group_size;
    for (int channel = group * args.group_size; channel < end; channel += kLanes) {
      typename Products::template Sums<Format, kRows> sums(start);
      MultiplyUnits<Format, kPrefetch>(units, factors, sums);
      AddColumn<Format, kRows>(args, p, first_row, channel, sums);
      units.first += kUnitBytes<Format>;
    }
  }
}

template <typename Products, typename Format>
void Pv(const PvArgs& args) {
  ForRowBlocks<Products, Format>(args.num_rows, [&args]<int kRows>(int first_row) {
    if (args.prefetch != nullptr && first_row == 0) {
      PvBlock<Products, Format, kRows, true>(args, first_row);
    } else {
      PvBlock<Products, Format, kRows, false>(args, first_row);
    }
  });
}

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONINT_PV_H_
