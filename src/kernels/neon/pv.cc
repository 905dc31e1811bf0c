#include "kernels/neon/formats.h"
#include "kernels/neon/kernels.h"

namespace turboquant::neon {
namespace {

// Probabilities of a block of rows over one channel group, V scales folded in.
template <int kRows>
using BlockP = float[kRows][kMaxTileTokens];

template <int kRows>
inline void FillBlock(const PvArgs& args, int first_row, int group, BlockP<kRows>& out) {
  const size_t scale_index = Size(group) * Size(args.scale_stride);
  for (int r = 0; r < kRows; ++r) {
    const float* p = args.p + Size(first_row + r) * kMaxTileTokens;
    for (int t = 0; t < args.num_tokens; t += 4) {
      float32x4_t pv = vld1q_f32(p + t);
      if (args.scales != nullptr)
        pv = vmulq_f32(pv, LoadHalves(args.scales + scale_index + Size(t)));
      vst1q_f32(out[r] + t, pv);
    }
  }
}

// out = out * rescale + acc, 16 channels of every row.
template <typename Format, int kRows>
TQ_ALWAYS_INLINE void AddColumn(const PvArgs& args, int first_row, int channel,
                                const float32x4_t (&acc)[kRows][kQuarters]) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* out = args.out + Size(first_row + r) * Size(args.head_dim) + channel;
    const float32x4_t rescale = vdupq_n_f32(args.rescale[first_row + r]);
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i, out += 4) {
      const float32x4_t term = vmulq_f32(acc[r][i], vdupq_n_f32(Format::kProductScale));
      vst1q_f32(out, vaddq_f32(vmulq_f32(vld1q_f32(out), rescale), term));
    }
  }
}

template <typename Format, int kRows, bool kPrefetch>
void PvBlock(const PvArgs& args, int first_row) {
  BlockP<kRows> p;
  LineRange lines = {args.v, Size(args.head_dim / kLanes) * kLineBytes,
                     args.num_tokens / Format::kCodes,
                     kPrefetch ? PrefetchOffset(args.prefetch, args.v) : 0};
  for (int group = 0; group * args.group_size < args.head_dim; ++group) {
    FillBlock<kRows>(args, first_row, group, p);
    const int end = (group + 1) * args.group_size;
    for (int channel = group * args.group_size; channel < end; channel += kLanes) {
      float32x4_t acc[kRows][kQuarters];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < kQuarters; ++i) acc[r][i] = Zero();
      }
      MultiplyLines<Format, kRows, kPrefetch>(lines, p[0], kMaxTileTokens, acc);
      AddColumn<Format, kRows>(args, first_row, channel, acc);
      lines.first += kLineBytes;
    }
  }
}

template <typename Format>
void Pv(const PvArgs& args) {
  ForRowBlocks(args.num_rows, [&args]<int kRows>(int first_row) {
    if (args.prefetch != nullptr && first_row == 0) {
      PvBlock<Format, kRows, true>(args, first_row);
    } else {
      PvBlock<Format, kRows, false>(args, first_row);
    }
  });
}

}  // namespace

void PvF32(const PvArgs& args) { Pv<F32>(args); }
void PvF16(const PvArgs& args) { Pv<F16>(args); }
void PvBf16(const PvArgs& args) { Pv<Bf16>(args); }
void PvFp8E4m3(const PvArgs& args) { Pv<Fp8E4m3>(args); }
void PvFp8E5m2(const PvArgs& args) { Pv<Fp8E5m2>(args); }

}  // namespace turboquant::neon
