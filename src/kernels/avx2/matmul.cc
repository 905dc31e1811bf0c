// Products of quantized weights (kernels/matmul.h).
//
// Many rows: the weights of 16 outputs are unpacked into a panel, one byte a weight,
//   [column / 4][16 outputs][4 columns]
// a chunk of columns at a time, which stays in the L1 cache while all rows go by. A 32-bit lane is
// an output; four columns of a row of x are broadcast to all lanes. vpmaddubsw takes weights as u8
// and x as s8 (or |w| and x with the sign of w); as many products are added up in 16 bits as fit
// there: 16 x 15 x 127, 8 x 31 x 127 and 8 x 32 x 127 < 2^15.
//
// Few rows: unpacking costs more than it saves. Eight outputs at a time, each with 32 columns side
// by side, then a transposing addition brings the eight sums together.
#include "kernels/matmul.h"

#include "kernels/avx2/kernels.h"
#include "kernels/avx2/vec.h"
#include "kernels/avx2/weight_blocks.h"

namespace turboquant::avx2 {
namespace {

constexpr int kOutputs = kOutputsPerUnit;     // of a panel: two vectors
constexpr int kQuads = kActivationBlock / 4;  // four columns each
constexpr int kPanelBlocks = 32;              // of 32 columns each
constexpr int kFewRows = 8;                   // at most; from there on a panel pays

// A quantized row.
struct Activations {
  const uint8_t* codes;
  const float* scales;
  const float* sums;
};

Activations RowOf(const MatmulArgs& args, int row) {
  const uint8_t* x = args.x + Size(row) * args.x_stride;
  const auto* scales = reinterpret_cast<const float*>(x + args.num_columns);
  return {x, scales, scales + args.num_columns / kActivationBlock};
}

// Products of weights and x, pairs of columns added in 16 bits.
template <bool kSigned>
TQ_ALWAYS_INLINE __m256i Products(__m256i w, __m256i x) {
  if constexpr (!kSigned) return _mm256_maddubs_epi16(w, x);
  return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}

// ---- many rows ----

struct Panel {
  alignas(64) uint8_t codes[kPanelBlocks * kActivationBlock * kOutputs];
  alignas(64) float scales[kPanelBlocks][kOutputs];
  alignas(64) float mins[kPanelBlocks][kOutputs];
};

// Columns [32 * first, 32 * (first + count)) of 16 outputs.
template <WeightType kType>
void FillPanel(const MatmulArgs& args, int output, int first, int count, Panel* panel) {
  using W = Weights<kType>;
  const uint8_t* rows = args.weights + Size(output) * args.weights_stride +
                        Size(first / W::kSubBlocks) * W::kLayout.bytes;
  for (int n = 0; n < kOutputs; ++n) {
    const uint8_t* block = rows + Size(n) * args.weights_stride;
    uint8_t* lane = panel->codes + 4 * Size(n);
    for (int b = 0; b < count; b += W::kSubBlocks, block += W::kLayout.bytes) {
      for (int j = 0; j < W::kSubBlocks; ++j, lane += kActivationBlock * kOutputs) {
        alignas(32) uint8_t bytes[kActivationBlock];
        StoreBytes(bytes, W::Codes(block, j));
        for (int q = 0; q < kQuads; ++q) {
          __builtin_memcpy(lane + Size(q) * 4 * kOutputs, bytes + 4 * q, 4);
        }
      }
    }
  }
  for (int b = 0; b < count; b += W::kSubBlocks, rows += W::kLayout.bytes) {
    for (int half = 0; half < 2; ++half) {
      typename W::Factors factors;
      W::Load(rows + Size(8 * half) * args.weights_stride, args.weights_stride, &factors);
      for (int j = 0; j < W::kSubBlocks; ++j) {
        _mm256_store_ps(panel->scales[b + j] + 8 * half, factors.scales[j]);
        if constexpr (W::kHasMin) {
          _mm256_store_ps(panel->mins[b + j] + 8 * half, factors.mins[j]);
        }
      }
    }
  }
}

// Sums of codes over 32 columns, 16 outputs, kRows rows; lanes are outputs.
template <WeightType kType, int kRows>
TQ_ALWAYS_INLINE void Dots(const uint8_t* panel, const Activations* x, int column,
                           __m256i (&dots)[kRows][2]) {
  using W = Weights<kType>;
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < kRows; ++r) dots[r][0] = dots[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int first = 0; first < kQuads; first += W::kQuadsPerSum) {
    __m256i sums[kRows][2];
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int q = first; q < first + W::kQuadsPerSum; ++q) {
      const __m256i w0 = LoadBytes(panel + 64 * q), w1 = LoadBytes(panel + 64 * q + 32);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256i quad = BroadcastQuad(x[r].codes + column + 4 * q);
        sums[r][0] = _mm256_add_epi16(sums[r][0], Products<W::kSigned>(w0, quad));
        sums[r][1] = _mm256_add_epi16(sums[r][1], Products<W::kSigned>(w1, quad));
      }
    }
    for (int r = 0; r < kRows; ++r) {
      dots[r][0] = _mm256_add_epi32(dots[r][0], _mm256_madd_epi16(sums[r][0], ones));
      dots[r][1] = _mm256_add_epi32(dots[r][1], _mm256_madd_epi16(sums[r][1], ones));
    }
  }
}

// Adds what the panel's columns give to 16 outputs of kRows rows.
template <WeightType kType, int kRows>
void AddTile(const MatmulArgs& args, const Panel& panel, int output, int first, int count,
             int row) {
  using W = Weights<kType>;
  Activations x[kRows];
  __m256 acc[kRows][2];
  float* out = args.out + Size(row) * args.out_stride + Size(output);
  for (int r = 0; r < kRows; ++r) {
    x[r] = RowOf(args, row + r);
    for (int half = 0; half < 2; ++half) {
      acc[r][half] = first == 0 ? _mm256_setzero_ps()
                                : _mm256_loadu_ps(out + Size(r) * args.out_stride + 8 * half);
    }
  }
  for (int b = 0; b < count; ++b) {
    __m256i dots[kRows][2];
    Dots<kType, kRows>(panel.codes + Size(b) * kActivationBlock * kOutputs, x,
                       (first + b) * kActivationBlock, dots);
    for (int r = 0; r < kRows; ++r) {
      const __m256 scale_x = _mm256_set1_ps(x[r].scales[first + b]);
      for (int half = 0; half < 2; ++half) {
        const __m256 scale = _mm256_mul_ps(_mm256_load_ps(panel.scales[b] + 8 * half), scale_x);
        acc[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][half]), scale, acc[r][half]);
      }
    }
    if constexpr (W::kHasMin) {
      for (int r = 0; r < kRows; ++r) {
        const __m256 sum_x = _mm256_set1_ps(x[r].sums[first + b]);
        for (int half = 0; half < 2; ++half) {
          acc[r][half] =
              _mm256_fmadd_ps(_mm256_load_ps(panel.mins[b] + 8 * half), sum_x, acc[r][half]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      _mm256_storeu_ps(out + Size(r) * args.out_stride + 8 * half, acc[r][half]);
    }
  }
}

template <WeightType kType>
void ManyRows(const MatmulArgs& args) {
  constexpr int kTileRows = 4;
  Panel panel;
  const int num_blocks = args.num_columns / kActivationBlock;
  for (int output = args.first_output; output < args.last_output; output += kOutputs) {
    for (int first = 0; first < num_blocks; first += kPanelBlocks) {
      const int count = num_blocks - first < kPanelBlocks ? num_blocks - first : kPanelBlocks;
      FillPanel<kType>(args, output, first, count, &panel);
      int row = 0;
      for (; row + kTileRows <= args.num_rows; row += kTileRows) {
        AddTile<kType, kTileRows>(args, panel, output, first, count, row);
      }
      for (; row < args.num_rows; ++row) {
        AddTile<kType, 1>(args, panel, output, first, count, row);
      }
    }
  }
}

// ---- few rows ----

// Sums of the lanes of eight vectors, one lane each.
TQ_ALWAYS_INLINE __m256i SumOfEach(const __m256i (&v)[8]) {
  const __m256i s01 = _mm256_hadd_epi32(v[0], v[1]), s23 = _mm256_hadd_epi32(v[2], v[3]);
  const __m256i s45 = _mm256_hadd_epi32(v[4], v[5]), s67 = _mm256_hadd_epi32(v[6], v[7]);
  const __m256i s0123 = _mm256_hadd_epi32(s01, s23), s4567 = _mm256_hadd_epi32(s45, s67);
  return _mm256_add_epi32(_mm256_permute2x128_si256(s0123, s4567, 0x20),
                          _mm256_permute2x128_si256(s0123, s4567, 0x31));
}

// One row with eight outputs, 32 columns; w: of each output.
template <WeightType kType>
TQ_ALWAYS_INLINE __m256 AddColumns(const __m256i (&w)[8], const Activations& x, int b, __m256 scale,
                                   __m256 min, __m256 acc) {
  using W = Weights<kType>;
  const __m256i codes = LoadBytes(x.codes + b * kActivationBlock);
  __m256i sums[8];
  for (int n = 0; n < 8; ++n) {
    sums[n] = _mm256_madd_epi16(Products<W::kSigned>(w[n], codes), _mm256_set1_epi16(1));
  }
  const __m256 scale_both = _mm256_mul_ps(scale, _mm256_set1_ps(x.scales[b]));
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(SumOfEach(sums)), scale_both, acc);
  if constexpr (W::kHasMin) acc = _mm256_fmadd_ps(min, _mm256_set1_ps(x.sums[b]), acc);
  return acc;
}

// Eight outputs of kRows rows.
template <WeightType kType, int kRows>
void AddEight(const MatmulArgs& args, int output) {
  using W = Weights<kType>;
  constexpr int kBlocks = W::kSubBlocks;
  // The next eight outputs are fetched in the order of memory, as much as a step uses up.
  const uint8_t* next = args.weights + Size(output + 8) * args.weights_stride;
  Activations x[kRows];
  __m256 acc[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = RowOf(args, r);
    acc[r] = _mm256_setzero_ps();
  }
  const uint8_t* block = args.weights + Size(output) * args.weights_stride;
  for (int first = 0; first < args.num_columns / kActivationBlock; first += kBlocks) {
    typename W::Factors factors;
    W::Load(block, args.weights_stride, &factors);
    for (int j = 0; j < kBlocks; ++j) {
      __m256i w[8];
      for (int n = 0; n < 8; ++n) w[n] = W::Codes(block + Size(n) * args.weights_stride, j);
      for (size_t at = 0; at < 8 * W::kLayout.bytes / kBlocks; at += kLineBytes) {
        __builtin_prefetch(next + at);
      }
      next += 8 * W::kLayout.bytes / kBlocks;
      for (int r = 0; r < kRows; ++r) {
        acc[r] = AddColumns<kType>(w, x[r], first + j, factors.scales[j], factors.mins[j], acc[r]);
      }
    }
    block += W::kLayout.bytes;
  }
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(args.out + Size(r) * args.out_stride + Size(output), acc[r]);
  }
}

template <WeightType kType, int kRows = 1>
void Multiply(const MatmulArgs& args) {
  if constexpr (kRows > kFewRows) {
    ManyRows<kType>(args);
  } else {
    if (args.num_rows != kRows) return Multiply<kType, kRows + 1>(args);
    for (int output = args.first_output; output < args.last_output; output += 8) {
      AddEight<kType, kRows>(args, output);
    }
  }
}

}  // namespace

void Matmul(const MatmulArgs& args) {
  switch (args.type) {
    case WeightType::kQ4_0:
      return Multiply<WeightType::kQ4_0>(args);
    case WeightType::kQ4_1:
      return Multiply<WeightType::kQ4_1>(args);
    case WeightType::kQ5_0:
      return Multiply<WeightType::kQ5_0>(args);
    case WeightType::kQ5_1:
      return Multiply<WeightType::kQ5_1>(args);
    case WeightType::kQ8_0:
      return Multiply<WeightType::kQ8_0>(args);
    case WeightType::kQ4K:
      return Multiply<WeightType::kQ4K>(args);
    case WeightType::kQ5K:
      return Multiply<WeightType::kQ5K>(args);
  }
}

void QuantizeRow(const float* x, int num_columns, uint8_t* out) {
  auto* scales = reinterpret_cast<float*>(out + num_columns);
  float* sums = scales + num_columns / kActivationBlock;
  for (int b = 0; b < num_columns / kActivationBlock; ++b) {
    __m256 v[4];
    __m256 max = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + b * kActivationBlock + 8 * i);
      max = _mm256_max_ps(max, Abs(v[i]));
    }
    const float amax = HorizontalMax(max);
    const __m256 inverse = _mm256_set1_ps(amax >= kTinyMax ? 127.0f / amax : 0.0f);
    __m256i codes[4];
    for (int i = 0; i < 4; ++i) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(codes[0], codes[1]),
                                         _mm256_add_epi32(codes[2], codes[3]));
    // Packing works within 128-bit halves: the dwords come out as 0 2 4 6 | 1 3 5 7.
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                              _mm256_packs_epi32(codes[2], codes[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    StoreBytes(out + b * kActivationBlock, _mm256_permutevar8x32_epi32(packed, order));
    scales[b] = FromF16(ToF16(amax / 127.0f));
    sums[b] = scales[b] * static_cast<float>(HorizontalSum(sum));
  }
}

}  // namespace turboquant::avx2
