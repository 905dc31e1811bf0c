#include "kernels/avx2/formats.h"
#include "kernels/avx2/kernels.h"
#include "kernels/avx2/narrow.h"

namespace turboquant::avx2 {
namespace {

using enum KvCacheDtype;

// Probabilities of a block of rows over one channel group, V scales folded in, in the factor order
// of the format.
template <typename Factor, int kRows>
struct BlockP {
  alignas(64) Factor factors[kRows][kMaxTileTokens];
  float
      step[kRows];  // integer formats: value of one code step x kProductScale; 0: the row is empty
  int32_t sum[kRows];        // integer formats: sum of the codes
  float zero_points[kRows];  // int4_asym: sum of code * zero point
};

// p with the scales folded in, eight tokens.
inline __m256 FoldScales(const PvArgs& args, const float* p, size_t scale_index, int token) {
  const __m256 pv = _mm256_loadu_ps(p + token);
  if (args.scales == nullptr) return pv;
  return _mm256_mul_ps(pv, LoadHalves(args.scales + scale_index + Size(token)));
}

// Sixteen codes as vpackusdw leaves them. 16-bit factors go into the order of vpmaddwd's planes,
// bytes stay in that of the tokens.
inline void StoreFactors(int16_t* out, __m256i packed) { StoreBytes(out, OrderQuads(packed)); }
inline void StoreFactors(uint8_t* out, __m256i packed) {
  const __m256i ordered = _mm256_permute4x64_epi64(packed, 0xD8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(out),
      _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1)));
}

template <typename Format, int kRows>
TQ_ALWAYS_INLINE void QuantizeRow(const PvArgs& args, const float* p, size_t scale_index, int r,
                                  BlockP<typename Format::Factor, kRows>& out) {
  alignas(64) float folded[kMaxTileTokens];
  __m256 max = _mm256_setzero_ps();
  for (int t = 0; t < args.num_tokens; t += 8) {
    const __m256 pv = FoldScales(args, p, scale_index, t);
    _mm256_store_ps(folded + t, pv);
    max = _mm256_max_ps(pv, max);
  }
  const float largest = HorizontalMax(max);
  const bool empty = largest < kTinyMax;
  out.step[r] = empty ? 0.0f : largest / 255.0f * Format::kProductScale;
  const __m256 inverse = _mm256_set1_ps(empty ? 0.0f : 255.0f / largest);
  __m256i sum = _mm256_setzero_si256();
  __m256 zero_points = _mm256_setzero_ps();
  for (int t = 0; t < args.num_tokens; t += 16) {
    // What is not a number becomes 0x80000000, which the pack below turns into 0.
    const __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(folded + t), inverse));
    const __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_load_ps(folded + t + 8), inverse));
    StoreFactors(out.factors[r] + t, _mm256_packus_epi32(a, b));
    if constexpr (Format::kBias != 0) sum = _mm256_add_epi32(sum, _mm256_add_epi32(a, b));
    if constexpr (Format::kZeroPoint) {
      const uint16_t* zp = args.zero_points + scale_index + Size(t);
      zero_points = _mm256_fmadd_ps(_mm256_cvtepi32_ps(a), LoadHalves(zp), zero_points);
      zero_points = _mm256_fmadd_ps(_mm256_cvtepi32_ps(b), LoadHalves(zp + 8), zero_points);
    }
  }
  if constexpr (Format::kBias != 0) out.sum[r] = HorizontalSum(sum);
  if constexpr (Format::kZeroPoint) out.zero_points[r] = HorizontalSum(zero_points);
}

// FP8 takes four tokens in the order 0 2 1 3, as the integers do; f32, f16 and bf16 take them as
// they come.
template <typename Format, int kRows>
inline void CopyRow(const PvArgs& args, const float* p, size_t scale_index, int r,
                    BlockP<float, kRows>& out) {
  for (int t = 0; t < args.num_tokens; t += 8) {
    __m256 pv = FoldScales(args, p, scale_index, t);
    if constexpr (Format::kCodes == 4) pv = _mm256_permute_ps(pv, 0xD8);
    _mm256_store_ps(out.factors[r] + t, pv);
  }
}

// out = out * rescale + (acc - zero point term) * step, 16 channels of every row.
template <typename Format, int kRows>
TQ_ALWAYS_INLINE void AddColumn(const PvArgs& args, const BlockP<typename Format::Factor, kRows>& p,
                                int first_row, int channel,
                                const typename Format::Acc (&acc)[kRows][Format::kAccs]) {
  for (int r = 0; r < kRows; ++r) {
    float* out = args.out + Size(first_row + r) * Size(args.head_dim) + channel;
    LaneFloats term = Format::Finish(acc[r]);
    if constexpr (Format::kZeroPoint) {
      const __m256 offset = _mm256_set1_ps(p.zero_points[r]);
      term = {_mm256_sub_ps(term.low, offset), _mm256_sub_ps(term.high, offset)};
    }
    if constexpr (Format::kInteger) {
      const __m256 step = _mm256_set1_ps(p.step[r]);
      term = {_mm256_mul_ps(term.low, step), _mm256_mul_ps(term.high, step)};
    }
    const __m256 rescale = _mm256_set1_ps(args.rescale[first_row + r]);
    const __m256 low = _mm256_mul_ps(_mm256_loadu_ps(out), rescale);
    const __m256 high = _mm256_mul_ps(_mm256_loadu_ps(out + 8), rescale);
    _mm256_storeu_ps(out, _mm256_add_ps(low, term.low));
    _mm256_storeu_ps(out + 8, _mm256_add_ps(high, term.high));
  }
}

template <typename Format, int kRows>
inline void FillBlock(const PvArgs& args, int first_row, int group,
                      BlockP<typename Format::Factor, kRows>& p) {
  const size_t scale_index = Size(group) * Size(args.scale_stride);
  for (int r = 0; r < kRows; ++r) {
    const float* row = args.p + Size(first_row + r) * kMaxTileTokens;
    if constexpr (Format::kInteger) {
      QuantizeRow<Format, kRows>(args, row, scale_index, r, p);
    } else {
      CopyRow<Format, kRows>(args, row, scale_index, r, p);
    }
  }
}

template <typename Format, int kRows, bool kPrefetch>
void PvBlock(const PvArgs& args, int first_row) {
  BlockP<typename Format::Factor, kRows> p;
  constexpr size_t kUnitBytes = size_t{Format::kUnitLines} * kLineBytes;
  const size_t stride = Size(args.head_dim / kLanes) * kUnitBytes;
  LineRange lines = {args.v, stride, args.num_tokens / Format::kCodes,
                     kPrefetch ? PrefetchOffset(args.prefetch, args.v) : 0};
  for (int group = 0; group * args.group_size < args.head_dim; ++group) {
    FillBlock<Format, kRows>(args, first_row, group, p);
    for (int channel = group * args.group_size; channel < (group + 1) * args.group_size;
         channel += kLanes) {
      typename Format::Acc acc[kRows][Format::kAccs];
      for (int r = 0; r < kRows; ++r) {
        int32_t start = 0;
        if constexpr (Format::kBias != 0) start = -Format::kBias * p.sum[r];
        for (int i = 0; i < Format::kAccs; ++i) acc[r][i] = Format::Start(start);
      }
      MultiplyLines<Format, kRows, kPrefetch>(lines, p.factors[0], kMaxTileTokens, acc);
      AddColumn<Format, kRows>(args, p, first_row, channel, acc);
      lines.first += kUnitBytes;
    }
  }
}

template <typename Format>
void Pv(const PvArgs& args) {
  ForRowBlocks<Format::kMaxRows>(args.num_rows, [&args]<int kRows>(int first_row) {
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
void PvInt8(const PvArgs& args) { Pv<Int8Value>(args); }
void PvFp8E4m3(const PvArgs& args) { Pv<Fp8E4m3>(args); }
void PvFp8E5m2(const PvArgs& args) { Pv<Fp8E5m2>(args); }
void PvInt6(const PvArgs& args) { Pv<NarrowLines<kInt6, false>>(args); }
void PvInt5(const PvArgs& args) { Pv<NarrowLines<kInt5, false>>(args); }
void PvInt4(const PvArgs& args) { Pv<NarrowLines<kInt4, false>>(args); }
void PvInt3(const PvArgs& args) { Pv<NarrowLines<kInt3, false>>(args); }
void PvInt2(const PvArgs& args) { Pv<NarrowLines<kInt2, false>>(args); }
void PvInt4Sym(const PvArgs& args) { Pv<Int4Value>(args); }
void PvInt4Asym(const PvArgs& args) { Pv<Int4AsymValue>(args); }

}  // namespace turboquant::avx2
