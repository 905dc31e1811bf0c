// vdpbf16ps adds the two products of a lane, channels of K or tokens of V, to an f32 accumulator.
// It rounds to nearest and takes subnormal inputs and results as 0, whatever MXCSR says.
//
// q is split into two bf16 terms, since one would cost the scores 2^-8 of |q| |k|; two dot products
// per line are no more work than two FMAs, and nothing has to be widened. Weights p are never
// negative and their rounding errors average out: one term.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/avx512bf16/kernels.h"

#define TURBOQUANT_INLINE inline __attribute__((always_inline))

namespace turboquant::avx512bf16 {
namespace {

constexpr int kLanes = 16;
constexpr int kLineBytes = 64;

// As in kernels/avx512/lines.h.
constexpr size_t PreparedRowBytes(int head_dim, int group_size) {
  return (4 * static_cast<size_t>(head_dim) + 4 * static_cast<size_t>(head_dim / group_size) +
          127) /
         64 * 64;
}
static_assert(PreparedRowBytes(128, 128) == PreparedQBytes(128, 128));
static_assert(PreparedRowBytes(80, 80) == PreparedQBytes(80, 80));

TURBOQUANT_INLINE __m512bh LoadLine(const uint8_t* line) {
  __m512bh x;
  std::memcpy(&x, line, sizeof(x));
  return x;
}

// One pair of a row for all lanes.
TURBOQUANT_INLINE __m512bh Pair(const uint8_t* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  const __m512i all = _mm512_set1_epi32(bits);
  __m512bh x;
  std::memcpy(&x, &all, sizeof(x));
  return x;
}

TURBOQUANT_INLINE __m256i ToBf16(__m512 x) {
  const __m256bh rounded = _mm512_cvtneps_pbh(x);
  __m256i bits;
  std::memcpy(&bits, &rounded, sizeof(bits));
  return bits;
}

TURBOQUANT_INLINE __m512 FromBf16(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

TURBOQUANT_INLINE void Prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

// kRows rows x kVectors vectors of 16 tokens from `token` on.
template <int kRows, int kVectors>
void QkPass(const QkArgs& args, int first_row, int token) {
  const size_t q_stride = PreparedRowBytes(args.head_dim, args.group_size);
  const size_t vector_bytes = static_cast<size_t>(args.head_dim / 2) * kLineBytes;
  const size_t offset = static_cast<size_t>(token / kLanes) * vector_bytes;
  const uint8_t* rows =
      static_cast<const uint8_t*>(args.q) + static_cast<size_t>(first_row) * q_stride;
  const bool prefetch = args.prefetch != nullptr && first_row == 0;
  __m512 acc_hi[kRows][kVectors], acc_lo[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) acc_hi[r][v] = acc_lo[r][v] = _mm512_setzero_ps();
  }
  for (int line = 0; line < args.head_dim / 2; ++line) {
    const size_t at = offset + static_cast<size_t>(line) * kLineBytes;
    __m512bh k[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      k[v] = LoadLine(args.k + at + static_cast<size_t>(v) * vector_bytes);
      if (prefetch) Prefetch(args.prefetch + at + static_cast<size_t>(v) * vector_bytes);
    }
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* q = rows + static_cast<size_t>(r) * q_stride + 8 * line;
      const __m512bh hi = Pair(q);
      const __m512bh lo = Pair(q + 4);
      for (int v = 0; v < kVectors; ++v) {
        acc_hi[r][v] = _mm512_dpbf16_ps(acc_hi[r][v], k[v], hi);
        acc_lo[r][v] = _mm512_dpbf16_ps(acc_lo[r][v], k[v], lo);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* scores = args.scores + (first_row + r) * kMaxTileTokens + token;
    for (int v = 0; v < kVectors; ++v) {
      __m512 score = _mm512_add_ps(acc_hi[r][v], acc_lo[r][v]);
      if (args.offsets != nullptr) {
        score = _mm512_add_ps(score, _mm512_set1_ps(args.offsets[first_row + r]));
      }
      _mm512_storeu_ps(scores + v * kLanes, score);
    }
  }
}

template <int kRows>
void QkRows(const QkArgs& args, int row) {
  int token = 0;
  for (; token + 4 * kLanes <= args.num_tokens; token += 4 * kLanes)
    QkPass<kRows, 4>(args, row, token);
  for (; token < args.num_tokens; token += kLanes) QkPass<kRows, 1>(args, row, token);
}

// kRows rows x kColumns columns of 16 channels from `column` on. p: bf16 [row][kMaxTileTokens].
template <int kRows, int kColumns>
void PvPass(const PvArgs& args, const uint16_t (*p)[kMaxTileTokens], int first_row, int column) {
  const bool prefetch = args.prefetch != nullptr && first_row == 0;
  const auto* rows = reinterpret_cast<const uint8_t*>(p[first_row]);
  __m512 acc[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) acc[r][c] = _mm512_setzero_ps();
  }
  for (int line = 0; line < args.num_tokens / 2; ++line) {
    const size_t at = (static_cast<size_t>(line) * static_cast<size_t>(args.head_dim / kLanes) +
                       static_cast<size_t>(column)) *
                      kLineBytes;
    __m512bh v[kColumns];
    for (int c = 0; c < kColumns; ++c) {
      v[c] = LoadLine(args.v + at + static_cast<size_t>(c) * kLineBytes);
      if (prefetch) Prefetch(args.prefetch + at + static_cast<size_t>(c) * kLineBytes);
    }
    for (int r = 0; r < kRows; ++r) {
      const __m512bh weights = Pair(rows + static_cast<size_t>(r) * sizeof(p[0]) + 4 * line);
      for (int c = 0; c < kColumns; ++c) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], v[c], weights);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* out = args.out +
                 static_cast<size_t>(first_row + r) * static_cast<size_t>(args.head_dim) +
                 column * kLanes;
    const __m512 rescale = _mm512_set1_ps(args.rescale[first_row + r]);
    for (int c = 0; c < kColumns; ++c, out += kLanes) {
      _mm512_storeu_ps(out, _mm512_add_ps(_mm512_mul_ps(_mm512_loadu_ps(out), rescale), acc[r][c]));
    }
  }
}

template <int kRows>
void PvRows(const PvArgs& args, const uint16_t (*p)[kMaxTileTokens], int row) {
  const int columns = args.head_dim / kLanes;
  int column = 0;
  if constexpr (kRows <= 2) {
    for (; column + 8 <= columns; column += 8) PvPass<kRows, 8>(args, p, row, column);
  }
  for (; column + 4 <= columns; column += 4) PvPass<kRows, 4>(args, p, row, column);
  for (; column < columns; ++column) PvPass<kRows, 1>(args, p, row, column);
}

}  // namespace

void PrepareQBf16(const PrepareQArgs& args) {
  const size_t row_bytes = PreparedRowBytes(args.head_dim, args.group_size);
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + static_cast<size_t>(r) * args.q_stride;
    uint8_t* row = static_cast<uint8_t*>(args.out) + static_cast<size_t>(r) * row_bytes;
    for (int c = 0; c < args.head_dim; c += kLanes, row += 4 * kLanes) {
      __m512 x = _mm512_mul_ps(_mm512_loadu_ps(q + c), _mm512_set1_ps(args.scale));
      if (args.channel_scales != nullptr)
        x = _mm512_mul_ps(x, _mm512_loadu_ps(args.channel_scales + c));
      const __m256i hi = ToBf16(x);
      const __m256i lo = ToBf16(_mm512_sub_ps(x, FromBf16(hi)));
      // Pairs alternate: the dwords of hi at even places, those of lo at odd ones.
      const __m512i even = _mm512_cvtepu32_epi64(hi);
      const __m512i odd = _mm512_slli_epi64(_mm512_cvtepu32_epi64(lo), 32);
      _mm512_storeu_si512(row, _mm512_or_si512(even, odd));
    }
  }
}

void QkBf16(const QkArgs& args) {
  int row = 0;
  for (; args.num_rows - row > 4 || args.num_rows - row == 3; row += 3) QkRows<3>(args, row);
  for (; args.num_rows - row >= 2; row += 2) QkRows<2>(args, row);
  if (row < args.num_rows) QkRows<1>(args, row);
}

void PvBf16(const PvArgs& args) {
  alignas(64) uint16_t p[kMaxTileRows][kMaxTileTokens];
  for (int r = 0; r < args.num_rows; ++r) {
    for (int t = 0; t < args.num_tokens; t += kLanes) {
      const __m256i bits = ToBf16(_mm512_loadu_ps(args.p + r * kMaxTileTokens + t));
      _mm256_store_si256(reinterpret_cast<__m256i*>(p[r] + t), bits);
    }
  }
  int row = 0;
  for (; args.num_rows - row >= 4; row += 4) PvRows<4>(args, p, row);
  for (; args.num_rows - row >= 2; row += 2) PvRows<2>(args, p, row);
  if (row < args.num_rows) PvRows<1>(args, p, row);
}

}  // namespace turboquant::avx512bf16
