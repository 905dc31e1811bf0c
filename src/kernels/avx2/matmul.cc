// Products of quantized weights (kernels/matmul.h).
//
// Many rows: the weights of 16 outputs are unpacked into a panel, one byte a weight,
//   [column / 4][16 outputs][4 columns]
// a chunk of columns at a time, which stays in the L1 cache while all rows go by. A 32-bit lane is
// an output; four columns of a row of x are broadcast to all lanes. vpmaddubsw takes weights as u8
// and x as s8: products of 4-bit codes are added up in 16 bits over a whole block (16 x 15 x 127 <
// 2^15), those of 8-bit ones (|w| and x with the sign of w) are widened at once.
//
// Few rows: unpacking costs more than it saves. Eight outputs at a time, each with the 32 columns
// of a block side by side, then a transposing addition brings the eight sums together.
#include "kernels/matmul.h"

#include "kernels/avx2/kernels.h"
#include "kernels/avx2/vec.h"

namespace turboquant::avx2 {
namespace {

constexpr int kOutputs = kOutputsPerUnit;  // of a panel: two vectors
constexpr int kQuads = kWeightBlock / 4;   // four columns each, of a block
constexpr int kChunkBlocks = 32;           // of a panel
constexpr int kFewRows = 8;                // at most; from there on a panel pays

// What blocks of a type are made of.
template <WeightType kType>
struct Traits {
  static constexpr bool kNibbles = kType != WeightType::kQ8_0;
  static constexpr bool kHasMin = kNibbles;
  static constexpr size_t kBytes = WeightBlockBytes(kType);
  static constexpr size_t kCodesAt = kType == WeightType::kQ4_1 ? 4 : 2;

  // Codes of a block: u8, or s8 of q8_0.
  TQ_ALWAYS_INLINE static __m256i Codes(const uint8_t* block) {
    if constexpr (!kNibbles) return LoadBytes(block + kCodesAt);
    const __m128i bytes = LoadBytes16(block + kCodesAt);
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
  }
  // Scales and mins of 8 outputs, `stride` bytes apart.
  TQ_ALWAYS_INLINE static void Factors(const uint8_t* block, size_t stride, __m256* scale,
                                       __m256* min) {
    if constexpr (kType == WeightType::kQ4_1) {  // scale and min side by side
      const __m128i low = FourDwords(block, stride), high = FourDwords(block + 4 * stride, stride);
      const __m128i first = _mm_set1_epi32(0xFFFF);
      *scale =
          _mm256_cvtph_ps(_mm_packus_epi32(_mm_and_si128(low, first), _mm_and_si128(high, first)));
      *min = _mm256_cvtph_ps(_mm_packus_epi32(_mm_srli_epi32(low, 16), _mm_srli_epi32(high, 16)));
    } else {
      *scale = _mm256_cvtph_ps(EightHalves(block, stride));
      *min = _mm256_mul_ps(*scale, _mm256_set1_ps(-8.0f));
    }
  }

 private:
  TQ_ALWAYS_INLINE static int DwordAt(const uint8_t* p) {
    int bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return bits;
  }
  TQ_ALWAYS_INLINE static __m128i FourDwords(const uint8_t* p, size_t stride) {
    return _mm_setr_epi32(DwordAt(p), DwordAt(p + stride), DwordAt(p + 2 * stride),
                          DwordAt(p + 3 * stride));
  }
  TQ_ALWAYS_INLINE static short HalfAt(const uint8_t* p) {
    short bits;
    __builtin_memcpy(&bits, p, sizeof(bits));
    return bits;
  }
  TQ_ALWAYS_INLINE static __m128i EightHalves(const uint8_t* p, size_t stride) {
    return _mm_setr_epi16(HalfAt(p), HalfAt(p + stride), HalfAt(p + 2 * stride),
                          HalfAt(p + 3 * stride), HalfAt(p + 4 * stride), HalfAt(p + 5 * stride),
                          HalfAt(p + 6 * stride), HalfAt(p + 7 * stride));
  }
};

// A quantized row.
struct Activations {
  const uint8_t* codes;
  const float* scales;
  const float* sums;
};

Activations RowOf(const MatmulArgs& args, int row) {
  const uint8_t* x = args.x + Size(row) * args.x_stride;
  const auto* scales = reinterpret_cast<const float*>(x + args.num_columns);
  return {x, scales, scales + args.num_columns / kWeightBlock};
}

// ---- many rows ----

struct Panel {
  alignas(64) uint8_t codes[kChunkBlocks * kWeightBlock * kOutputs];
  alignas(64) float scales[kChunkBlocks][kOutputs];
  alignas(64) float mins[kChunkBlocks][kOutputs];
};

// Blocks [first, first + count) of 16 outputs.
template <WeightType kType>
void FillPanel(const MatmulArgs& args, int output, int first, int count, Panel* panel) {
  using T = Traits<kType>;
  const uint8_t* rows = args.weights + Size(output) * args.weights_stride + Size(first) * T::kBytes;
  for (int n = 0; n < kOutputs; ++n) {
    const uint8_t* block = rows + Size(n) * args.weights_stride;
    for (int b = 0; b < count; ++b, block += T::kBytes) {
      alignas(32) uint8_t bytes[kWeightBlock];
      StoreBytes(bytes, T::Codes(block));
      uint8_t* lane = panel->codes + Size(b) * kWeightBlock * kOutputs + 4 * Size(n);
      for (int q = 0; q < kQuads; ++q) {
        __builtin_memcpy(lane + Size(q) * 4 * kOutputs, bytes + 4 * q, 4);
      }
    }
  }
  for (int b = 0; b < count; ++b) {
    for (int half = 0; half < 2; ++half) {
      __m256 scale, min;
      T::Factors(rows + Size(8 * half) * args.weights_stride + Size(b) * T::kBytes,
                 args.weights_stride, &scale, &min);
      _mm256_store_ps(panel->scales[b] + 8 * half, scale);
      _mm256_store_ps(panel->mins[b] + 8 * half, min);
    }
  }
}

// Sums of codes over a block, 16 outputs, kRows rows; lanes are outputs.
template <WeightType kType, int kRows>
TQ_ALWAYS_INLINE void Dots(const uint8_t* panel, const Activations* x, int column,
                           __m256i (&dots)[kRows][2]) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < kRows; ++r) dots[r][0] = dots[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) {
    const __m256i w0 = LoadBytes(panel + 64 * q), w1 = LoadBytes(panel + 64 * q + 32);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256i quad = BroadcastQuad(x[r].codes + column + 4 * q);
      if constexpr (Traits<kType>::kNibbles) {
        dots[r][0] = _mm256_add_epi16(dots[r][0], _mm256_maddubs_epi16(w0, quad));
        dots[r][1] = _mm256_add_epi16(dots[r][1], _mm256_maddubs_epi16(w1, quad));
      } else {
        const __m256i p0 = _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(quad, w0));
        const __m256i p1 = _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(quad, w1));
        dots[r][0] = _mm256_add_epi32(dots[r][0], _mm256_madd_epi16(p0, ones));
        dots[r][1] = _mm256_add_epi32(dots[r][1], _mm256_madd_epi16(p1, ones));
      }
    }
  }
  if constexpr (Traits<kType>::kNibbles) {
    for (int r = 0; r < kRows; ++r) {
      dots[r][0] = _mm256_madd_epi16(dots[r][0], ones);
      dots[r][1] = _mm256_madd_epi16(dots[r][1], ones);
    }
  }
}

// Adds what the panel's blocks give to 16 outputs of kRows rows. `first`: of the panel's blocks.
template <WeightType kType, int kRows>
void AddTile(const MatmulArgs& args, const Panel& panel, int output, int first, int count,
             int row) {
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
    Dots<kType, kRows>(panel.codes + Size(b) * kWeightBlock * kOutputs, x,
                       (first + b) * kWeightBlock, dots);
    for (int r = 0; r < kRows; ++r) {
      const __m256 scale_x = _mm256_set1_ps(x[r].scales[first + b]);
      const __m256 sum_x = _mm256_set1_ps(x[r].sums[first + b]);
      for (int half = 0; half < 2; ++half) {
        const __m256 scale = _mm256_mul_ps(_mm256_load_ps(panel.scales[b] + 8 * half), scale_x);
        acc[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][half]), scale, acc[r][half]);
        if constexpr (Traits<kType>::kHasMin) {
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
  const int num_blocks = args.num_columns / kWeightBlock;
  for (int output = args.first_output; output < args.last_output; output += kOutputs) {
    for (int first = 0; first < num_blocks; first += kChunkBlocks) {
      const int count = num_blocks - first < kChunkBlocks ? num_blocks - first : kChunkBlocks;
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

// Sums of the eight vectors' lanes, one lane each.
TQ_ALWAYS_INLINE __m256i SumOfEach(const __m256i (&v)[8]) {
  const __m256i s01 = _mm256_hadd_epi32(v[0], v[1]), s23 = _mm256_hadd_epi32(v[2], v[3]);
  const __m256i s45 = _mm256_hadd_epi32(v[4], v[5]), s67 = _mm256_hadd_epi32(v[6], v[7]);
  const __m256i s0123 = _mm256_hadd_epi32(s01, s23), s4567 = _mm256_hadd_epi32(s45, s67);
  return _mm256_add_epi32(_mm256_permute2x128_si256(s0123, s4567, 0x20),
                          _mm256_permute2x128_si256(s0123, s4567, 0x31));
}

template <WeightType kType>
TQ_ALWAYS_INLINE __m256i PairSums(__m256i w, __m256i x) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (Traits<kType>::kNibbles) {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones);
  }
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), ones);
}

// Eight outputs of kRows rows.
template <WeightType kType, int kRows>
void AddEight(const MatmulArgs& args, int output) {
  using T = Traits<kType>;
  // The next eight outputs are fetched in the order of memory, as much as a step uses up.
  const uint8_t* next = args.weights + Size(output + 8) * args.weights_stride;
  Activations x[kRows];
  __m256 acc[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = RowOf(args, r);
    acc[r] = _mm256_setzero_ps();
  }
  const uint8_t* block = args.weights + Size(output) * args.weights_stride;
  for (int b = 0; b < args.num_columns / kWeightBlock; ++b, block += T::kBytes) {
    __m256i w[8];
    for (int n = 0; n < 8; ++n) {
      w[n] = T::Codes(block + Size(n) * args.weights_stride);
    }
    for (size_t at = 0; at < 8 * T::kBytes; at += kLineBytes) __builtin_prefetch(next + at);
    next += 8 * T::kBytes;
    __m256 scale, min;
    T::Factors(block, args.weights_stride, &scale, &min);
    for (int r = 0; r < kRows; ++r) {
      const __m256i codes = LoadBytes(x[r].codes + b * kWeightBlock);
      __m256i sums[8];
      for (int n = 0; n < 8; ++n) sums[n] = PairSums<kType>(w[n], codes);
      const __m256 dots = _mm256_cvtepi32_ps(SumOfEach(sums));
      acc[r] = _mm256_fmadd_ps(dots, _mm256_mul_ps(scale, _mm256_set1_ps(x[r].scales[b])), acc[r]);
      if constexpr (T::kHasMin) {
        acc[r] = _mm256_fmadd_ps(min, _mm256_set1_ps(x[r].sums[b]), acc[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    _mm256_storeu_ps(args.out + Size(r) * args.out_stride + Size(output), acc[r]);
  }
}

template <WeightType kType, int kRows>
void FewRows(const MatmulArgs& args) {
  for (int output = args.first_output; output < args.last_output; output += 8) {
    AddEight<kType, kRows>(args, output);
  }
}

template <WeightType kType, int kRows = 1>
void Multiply(const MatmulArgs& args) {
  if constexpr (kRows > kFewRows) {
    ManyRows<kType>(args);
  } else {
    if (args.num_rows == kRows) return FewRows<kType, kRows>(args);
    Multiply<kType, kRows + 1>(args);
  }
}

}  // namespace

void Matmul(const MatmulArgs& args) {
  if (args.type == WeightType::kQ4_0) return Multiply<WeightType::kQ4_0>(args);
  if (args.type == WeightType::kQ4_1) return Multiply<WeightType::kQ4_1>(args);
  Multiply<WeightType::kQ8_0>(args);
}

void QuantizeRow(const float* x, int num_columns, uint8_t* out) {
  auto* scales = reinterpret_cast<float*>(out + num_columns);
  float* sums = scales + num_columns / kWeightBlock;
  for (int b = 0; b < num_columns / kWeightBlock; ++b, x += kWeightBlock, out += kWeightBlock) {
    __m256 v[4];
    __m256 max = _mm256_setzero_ps();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 8 * i);
      max = _mm256_max_ps(max, Abs(v[i]));
    }
    const float amax = HorizontalMax(max);
    const __m256 inverse = _mm256_set1_ps(amax > 0 ? 127.0f / amax : 0.0f);
    __m256i codes[4];
    for (int i = 0; i < 4; ++i) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(codes[0], codes[1]),
                                         _mm256_add_epi32(codes[2], codes[3]));
    // Packing works within 128-bit halves: the dwords come out as 0 2 4 6 | 1 3 5 7.
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                              _mm256_packs_epi32(codes[2], codes[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    StoreBytes(out, _mm256_permutevar8x32_epi32(packed, order));
    scales[b] = FromF16(ToF16(amax / 127.0f));
    sums[b] = scales[b] * static_cast<float>(HorizontalSum(sum));
  }
}

}  // namespace turboquant::avx2
