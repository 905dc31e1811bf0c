#include "kernels/avx2/formats.h"
#include "kernels/avx2/kernels.h"
#include "kernels/avx2/narrow.h"
#include "kernels/avx2/prepared_q.h"

namespace turboquant::avx2 {
namespace {

using enum KvCacheDtype;

// The rows of one block: factors, and for integer formats their scale and sums of codes.
template <typename Factor>
struct BlockQ {
  const Factor* factors;  // row r at factors + r * stride
  size_t stride;
  size_t row_bytes;
  const uint8_t* tail;  // float scale, int32 sums[]; row r at tail + r * row_bytes

  BlockQ(const QkArgs& args, int first_row) {
    row_bytes = RowBytes(args.head_dim, args.group_size);
    const uint8_t* base = static_cast<const uint8_t*>(args.q) + Size(first_row) * row_bytes;
    factors = reinterpret_cast<const Factor*>(base);
    stride = row_bytes / sizeof(Factor);
    tail = base + sizeof(Factor) * Size(args.head_dim);
  }
  float Scale(int row) const {
    return *reinterpret_cast<const float*>(tail + Size(row) * row_bytes);
  }
  int32_t Sum(int row, int group) const {
    return reinterpret_cast<const int32_t*>(tail + Size(row) * row_bytes)[1 + group];
  }
};

// Adds the term of one group for 16 tokens to the scores: (acc - zero point * sum of q codes) *
// scale.
template <typename Format, int kRows>
TQ_ALWAYS_INLINE void AddGroup(const QkArgs& args, const BlockQ<typename Format::Factor>& q,
                               int first_row, int first_token, int group,
                               const typename Format::Acc (&acc)[kRows][Format::kAccs]) {
  const size_t scale_index = Size(group) * Size(args.scale_stride) + Size(first_token);
  const bool last = (group + 1) * args.group_size == args.head_dim;
  for (int r = 0; r < kRows; ++r) {
    float* scores = args.scores + Size(first_row + r) * kMaxTileTokens + Size(first_token);
    LaneFloats term = Format::Finish(acc[r]);
    if constexpr (Format::kZeroPoint) {
      const __m256 sum = _mm256_set1_ps(static_cast<float>(q.Sum(r, group)));
      const uint16_t* zero_points = args.zero_points + scale_index;
      term.low = _mm256_sub_ps(term.low, _mm256_mul_ps(LoadHalves(zero_points), sum));
      term.high = _mm256_sub_ps(term.high, _mm256_mul_ps(LoadHalves(zero_points + 8), sum));
    }
    if (args.scales != nullptr) {
      term.low = _mm256_mul_ps(term.low, LoadHalves(args.scales + scale_index));
      term.high = _mm256_mul_ps(term.high, LoadHalves(args.scales + scale_index + 8));
    }
    if (group > 0) {
      term.low = _mm256_add_ps(_mm256_loadu_ps(scores), term.low);
      term.high = _mm256_add_ps(_mm256_loadu_ps(scores + 8), term.high);
    }
    if constexpr (Format::kInteger) {
      if (last) {
        const __m256 scale = _mm256_set1_ps(q.Scale(r));
        term.low = _mm256_mul_ps(term.low, scale);
        term.high = _mm256_mul_ps(term.high, scale);
      }
    }
    if (last && args.offsets != nullptr) {
      const __m256 offset = _mm256_set1_ps(args.offsets[first_row + r]);
      term.low = _mm256_add_ps(term.low, offset);
      term.high = _mm256_add_ps(term.high, offset);
    }
    _mm256_storeu_ps(scores, term.low);
    _mm256_storeu_ps(scores + 8, term.high);
  }
}

template <typename Format, int kRows, bool kPrefetch>
void QkBlock(const QkArgs& args, int first_row) {
  const BlockQ<typename Format::Factor> q(args, first_row);
  const int lines_per_group = args.group_size / Format::kCodes;
  constexpr size_t kUnitBytes = size_t{Format::kUnitLines} * kLineBytes;
  LineRange lines = {args.k, kUnitBytes, lines_per_group,
                     kPrefetch ? PrefetchOffset(args.prefetch, args.k) : 0};
  for (int token = 0; token < args.num_tokens; token += kLanes) {
    for (int group = 0; group * args.group_size < args.head_dim; ++group) {
      typename Format::Acc acc[kRows][Format::kAccs];
      for (int r = 0; r < kRows; ++r) {
        int32_t start = 0;
        if constexpr (Format::kBias != 0) start = -Format::kBias * q.Sum(r, group);
        for (int i = 0; i < Format::kAccs; ++i) acc[r][i] = Format::Start(start);
      }
      MultiplyLines<Format, kRows, kPrefetch>(lines, q.factors + group * args.group_size, q.stride,
                                              acc);
      AddGroup<Format, kRows>(args, q, first_row, token, group, acc);
      lines.first += Size(lines_per_group) * kUnitBytes;
    }
  }
}

template <typename Format>
void Qk(const QkArgs& args) {
  ForRowBlocks<Format::kMaxRows>(args.num_rows, [&args]<int kRows>(int first_row) {
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
void QkInt8(const QkArgs& args) { Qk<Int8Key>(args); }
void QkFp8E4m3(const QkArgs& args) { Qk<Fp8E4m3>(args); }
void QkFp8E5m2(const QkArgs& args) { Qk<Fp8E5m2>(args); }
void QkInt6(const QkArgs& args) { Qk<NarrowLines<kInt6, true>>(args); }
void QkInt5(const QkArgs& args) { Qk<NarrowLines<kInt5, true>>(args); }
void QkInt4(const QkArgs& args) { Qk<NarrowLines<kInt4, true>>(args); }
void QkInt3(const QkArgs& args) { Qk<NarrowLines<kInt3, true>>(args); }
void QkInt2(const QkArgs& args) { Qk<NarrowLines<kInt2, true>>(args); }
void QkInt4Sym(const QkArgs& args) { Qk<Int4Key>(args); }
void QkInt4Asym(const QkArgs& args) { Qk<Int4AsymKey>(args); }

}  // namespace turboquant::avx2
