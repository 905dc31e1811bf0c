// prepare_q of the integer formats: Prepare<terms of a code>.
#ifndef TURBOQUANT_KERNELS_NEONINT_PREPARE_Q_H_
#define TURBOQUANT_KERNELS_NEONINT_PREPARE_Q_H_

#include "kernels/kernel_table.h"
#include "kernels/neonint/prepared_q.h"

namespace turboquant::TQ_FOLDER {

// Four values of q'.
inline float32x4_t Folded(const PrepareQArgs& args, const float* q, int c) {
  const float32x4_t scaled = vmulq_f32(vld1q_f32(q + c), vdupq_n_f32(args.scale));
  return args.channel_scales == nullptr ? scaled
                                        : vmulq_f32(scaled, vld1q_f32(args.channel_scales + c));
}

// sq, or 0 or NaN for a row that gets no codes.
inline float ScaleOfRow(const PrepareQArgs& args, const float* q, float max_code) {
  float32x4_t max = vdupq_n_f32(0.0f);
  uint32x4_t finite = vdupq_n_u32(~0u);  // x - x is NaN for NaN and infinity
  for (int c = 0; c < args.head_dim; c += 4) {
    const float32x4_t value = Folded(args, q, c);
    max = vmaxnmq_f32(max, vabsq_f32(value));
    const float32x4_t zero = vsubq_f32(value, value);
    finite = vandq_u32(finite, vceqq_f32(zero, zero));
  }
  if (vminvq_u32(finite) == 0) return __builtin_nanf("");
  const float largest = vmaxnmvq_f32(max);
  return largest < kTinyMax ? 0.0f : largest / max_code;
}

// Eight codes, 0 where the row has none.
inline int16x8_t CodesOf(const PrepareQArgs& args, const float* q, float scale, int c) {
  if (!(scale > 0)) return vdupq_n_s16(0);
  const float32x4_t divisor = vdupq_n_f32(scale);
  const int32x4_t low = vcvtnq_s32_f32(vdivq_f32(Folded(args, q, c), divisor));
  const int32x4_t high = vcvtnq_s32_f32(vdivq_f32(Folded(args, q, c + 4), divisor));
  return vcombine_s16(vmovn_s32(low), vmovn_s32(high));
}

template <int kTerms>
inline void StoreTerms(int16x8_t codes, int8_t* terms, int head_dim) {
  if constexpr (kTerms == 1) {
    vst1_s8(terms, vmovn_s16(codes));
  } else {
    vst1_s8(terms, vrshrn_n_s16(codes, 8));  // (code + 128) >> 8
    vst1_s8(terms + head_dim, vmovn_s16(codes));
  }
}

template <int kTerms>
void Prepare(const PrepareQArgs& args, float max_code) {
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + Size(r) * args.q_stride;
    const PreparedRow<kTerms> out(args.out, r, args.head_dim, args.group_size);
    const float scale = ScaleOfRow(args, q, max_code);
    *out.scale = scale;
    for (int g = 0; g < args.head_dim / args.group_size; ++g) {
      int32x4_t sum = vdupq_n_s32(0);
      for (int c = g * args.group_size; c < (g + 1) * args.group_size; c += 8) {
        const int16x8_t codes = CodesOf(args, q, scale, c);
        sum = vpadalq_s16(sum, codes);
        StoreTerms<kTerms>(codes, out.terms + c, args.head_dim);
      }
      out.sums[g] = vaddvq_s32(sum);
    }
  }
}

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONINT_PREPARE_Q_H_
