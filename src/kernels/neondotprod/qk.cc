#include "kernels/neondotprod/formats.h"
#include "kernels/neondotprod/kernels.h"
#include "kernels/neondotprod/narrow.h"
#include "kernels/neondotprod/prepared_q.h"

namespace turboquant::neondotprod {
namespace {

using enum KvCacheDtype;

template <typename Format>
PreparedRow<Format::kTerms> RowOf(const QkArgs& args, int row) {
  return {const_cast<void*>(args.q), row, args.head_dim, args.group_size};  // read only
}

// Adds the term of one group for 16 tokens to the scores: (acc - zero point * sum of q codes) *
// scale, in the operations and order of the scalar rows, so that integer formats have their bits.
template <typename Format, int kRows>
TQ_ALWAYS_INLINE void AddGroup(const QkArgs& args, int first_row, int first_token, int group,
                               const Accumulators<Format, kRows>& acc) {
  const size_t scale_index = Size(group) * Size(args.scale_stride) + Size(first_token);
  const bool last = (group + 1) * args.group_size == args.head_dim;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const auto q = RowOf<Format>(args, first_row + r);
    float* scores = args.scores + Size(first_row + r) * kMaxTileTokens + Size(first_token);
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i, scores += 4) {
      const size_t at = scale_index + 4 * Size(i);
      float32x4_t term = FinishQuarter<Format>(acc[r], i);
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

template <typename Format, int kRows, bool kPrefetch>
void QkBlock(const QkArgs& args, int first_row) {
  FactorRows<int8_t> factors = {nullptr, RowBytes(args.head_dim, args.group_size),
                                Size(args.head_dim)};
  UnitRange units = {args.k, kUnitBytes<Format>, args.group_size / kCodesPerUnit<Format>,
                     kPrefetch ? PrefetchOffset(args.prefetch, args.k) : 0};
  for (int token = 0; token < args.num_tokens; token += kLanes) {
    for (int group = 0; group * args.group_size < args.head_dim; ++group) {
      Accumulators<Format, kRows> acc;
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        StartRow<Format>(-Format::kBias * RowOf<Format>(args, first_row + r).sums[group], acc[r]);
      }
      factors.first = RowOf<Format>(args, first_row).terms + group * args.group_size;
      MultiplyUnits<Format, kRows, kPrefetch>(units, factors, acc);
      AddGroup<Format, kRows>(args, first_row, token, group, acc);
      units.first += Size(units.num_units) * kUnitBytes<Format>;
    }
  }
}

template <typename Format>
void Qk(const QkArgs& args) {
  ForRowBlocks<Format::kMaxBlockRows>(args.num_rows, [&args]<int kRows>(int first_row) {
    if (args.prefetch != nullptr && first_row == 0) {
      QkBlock<Format, kRows, true>(args, first_row);
    } else {
      QkBlock<Format, kRows, false>(args, first_row);
    }
  });
}

}  // namespace

void QkInt8(const QkArgs& args) { Qk<Int8Lines<true>>(args); }
void QkInt6(const QkArgs& args) { Qk<NarrowLines<kInt6, true>>(args); }
void QkInt5(const QkArgs& args) { Qk<NarrowLines<kInt5, true>>(args); }
void QkInt4(const QkArgs& args) { Qk<NarrowLines<kInt4, true>>(args); }
void QkInt3(const QkArgs& args) { Qk<NarrowLines<kInt3, true>>(args); }
void QkInt2(const QkArgs& args) { Qk<NarrowLines<kInt2, true>>(args); }
void QkInt4Sym(const QkArgs& args) { Qk<NibbleLines<true, false>>(args); }
void QkInt4Asym(const QkArgs& args) { Qk<NibbleLines<true, true>>(args); }

}  // namespace turboquant::neondotprod
