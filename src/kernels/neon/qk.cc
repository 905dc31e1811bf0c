#include "kernels/neon/formats.h"
#include "kernels/neon/kernels.h"
#include "kernels/neon/prepared_q.h"

namespace turboquant::neon {
namespace {

// Adds the term of one group for 16 tokens to the scores.
template <typename Format, int kRows>
TQ_ALWAYS_INLINE void AddGroup(const QkArgs& args, int first_row, int first_token, int group,
                               const float32x4_t (&acc)[kRows][kQuarters]) {
  const size_t scale_index = Size(group) * Size(args.scale_stride) + Size(first_token);
  const bool last = (group + 1) * args.group_size == args.head_dim;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* scores = args.scores + Size(first_row + r) * kMaxTileTokens + Size(first_token);
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i, scores += 4) {
      float32x4_t term = vmulq_f32(acc[r][i], vdupq_n_f32(Format::kProductScale));
      if (args.scales != nullptr)
        term = vmulq_f32(term, LoadHalves(args.scales + scale_index + 4 * Size(i)));
      if (group > 0) term = vaddq_f32(vld1q_f32(scores), term);
      if (last && args.offsets != nullptr)
        term = vaddq_f32(term, vdupq_n_f32(args.offsets[first_row + r]));
      vst1q_f32(scores, term);
    }
  }
}

template <typename Format, int kRows, bool kPrefetch>
void QkBlock(const QkArgs& args, int first_row) {
  const size_t row_bytes = RowBytes(args.head_dim, args.group_size);
  const auto* q = reinterpret_cast<const float*>(static_cast<const uint8_t*>(args.q) +
                                                 Size(first_row) * row_bytes);
  LineRange lines = {args.k, kLineBytes, args.group_size / Format::kCodes,
                     kPrefetch ? PrefetchOffset(args.prefetch, args.k) : 0};
  for (int token = 0; token < args.num_tokens; token += kLanes) {
    for (int group = 0; group * args.group_size < args.head_dim; ++group) {
      float32x4_t acc[kRows][kQuarters];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int i = 0; i < kQuarters; ++i) acc[r][i] = Zero();
      }
      MultiplyLines<Format, kRows, kPrefetch>(lines, q + group * args.group_size,
                                              row_bytes / sizeof(float), acc);
      AddGroup<Format, kRows>(args, first_row, token, group, acc);
      lines.first += Size(lines.num_lines) * kLineBytes;
    }
  }
}

template <typename Format>
void Qk(const QkArgs& args) {
  ForRowBlocks(args.num_rows, [&args]<int kRows>(int first_row) {
    if (args.prefetch != nullptr && first_row == 0) {
      QkBlock<Format, kRows, true>(args, first_row);
    } else {
      QkBlock<Format, kRows, false>(args, first_row);
    }
  });
}

}  // namespace

void QkF32(const QkArgs& args) { Qk<F32>(args); }
void QkF16(const QkArgs& args) { Qk<F16>(args); }
void QkBf16(const QkArgs& args) { Qk<Bf16>(args); }
void QkFp8E4m3(const QkArgs& args) { Qk<Fp8E4m3>(args); }
void QkFp8E5m2(const QkArgs& args) { Qk<Fp8E5m2>(args); }

}  // namespace turboquant::neon
