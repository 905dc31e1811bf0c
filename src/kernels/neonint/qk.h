// QK of an integer format: Qk<Products, Format> (formats.h).
#ifndef TURBOQUANT_KERNELS_NEONINT_QK_H_
#define TURBOQUANT_KERNELS_NEONINT_QK_H_

#include "kernels/kernel_table.h"
#include "kernels/neonint/formats.h"
#include "kernels/neonint/prepared_q.h"

namespace turboquant::TQ_FOLDER {

template <typename Format>
PreparedRow<Format::kTerms> RowOf(const QkArgs& args, int row) {
  return {const_cast<void*>(args.q), row, args.head_dim, args.group_size};  // read only
}

// Adds the term of one group for 16 tokens to the scores: (acc - zero point * sum of q codes) *
// scale, in the operations and order of the scalar rows, so that integer formats have their bits.
template <typename Format, int kRows, typename Sums>
TQ_ALWAYS_INLINE void AddGroup(const QkArgs& args, int first_row, int first_token, int group,
                               const Sums& sums) {
  const size_t scale_index = Size(group) * Size(args.scale_stride) + Size(first_token);
  const bool last = (group + 1) * args.group_size == args.head_dim;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const auto q = RowOf<Format>(args, first_row + r);
    float* scores = args.scores + Size(first_row + r) * kMaxTileTokens + Size(first_token);
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i, scores += 4) {
      const size_t at = scale_index + 4 * Size(i);
      float32x4_t term = vcvtq_f32_s32(sums.Quarter(r, i));
      if constexpr (Format::kZeroPoint) {
        const float32x4_t sum = vdupq_n_f32(static_cast<float>(q.sums[group]));
        term = vsubq_f32(term, vmulq_f32(LoadHalves(args.zero_points + at), sum));
      }
      if (args.scales != nullptr) term = vmulq_f32(term, LoadHalves(args.scales + at));
      if (group > 0) term = vaddq_f32(vld1q_f32(scores), term);
      if (last) {
        term = vmulq_f32(term, vdupq_n_f32(*q.scale));
        if (args.offsets != nullptr)
          term = vaddq_f32(term, vdupq_n_f32(args.offsets[first_row + r]));
      }
      vst1q_f32(scores, term);
    }
  }
}

template <typename Products, typename Format, int kRows, bool kPrefetch>
void QkBlock(const QkArgs& args, int first_row) {
  FactorRows<int8_t> factors = {nullptr, RowBytes(args.head_dim, args.group_size),
                                Size(args.head_dim)};
  UnitRange units = {args.k, kUnitBytes<Format>, args.group_size / kCodesPerUnit<Format>,
                     kPrefetch ? PrefetchOffset(args.prefetch, args.k) : 0};
  for (int token = 0; token < args.num_tokens; token += kLanes) {
    for (int group = 0; group * args.group_size < args.head_dim; ++group) {
      int32_t start[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r)
        start[r] = -Format::kBias * RowOf<Format>(args, first_row + r).sums[group];
      typename Products::template Sums<Format, kRows> sums(start);
      factors.first = RowOf<Format>(args, first_row).terms + group * args.group_size;
      MultiplyUnits<Format, kPrefetch>(units, factors, sums);
      AddGroup<Format, kRows>(args, first_row, token, group, sums);
      units.first += Size(units.num_units) * kUnitBytes<Format>;
    }
  }
}

template <typename Products, typename Format>
void Qk(const QkArgs& args) {
  ForRowBlocks<Products, Format>(args.num_rows, [&args]<int kRows>(int first_row) {
    if (args.prefetch != nullptr && first_row == 0) {
      QkBlock<Products, Format, kRows, true>(args, first_row);
    } else {
      QkBlock<Products, Format, kRows, false>(args, first_row);
    }
  });
}

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONINT_QK_H_
