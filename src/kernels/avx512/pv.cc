// Weighted sums of V lines. A pass takes kRows rows x kColumns columns of 16 channels over all
// tokens of the tile, with one accumulator each (two where codes are widened in pairs), so that a
// line that was loaded serves all rows of the pass.
#include "kernels/avx512/kernels.h"
#include "kernels/avx512/lines.h"
#include "kernels/avx512/narrow.h"

namespace turboquant::avx512 {
namespace {

constexpr int kMaxVectors = kMaxTileTokens / kLanes;

// Rows of p over one channel group as the products take them. Integer formats: u8 codes, the value
// of one step, and what is taken off the sums: an integer for biased codes, a float for zero
// points.
struct CodedP {
  alignas(64) uint8_t codes[kMaxTileRows][kMaxTileTokens];
  float step[kMaxTileRows];
  float offset[kMaxTileRows];
  int32_t bias[kMaxTileRows];
};
struct FloatP {
  alignas(64) float values[kMaxTileRows][kMaxTileTokens];
};

// p of a row with the V scales folded in, 16 tokens of them.
TURBOQUANT_INLINE __m512 ScaledP(const PvArgs& args, int r, int token, const uint16_t* scales) {
  const __m512 p = _mm512_loadu_ps(args.p + r * kMaxTileTokens + token);
  return scales == nullptr ? p : _mm512_mul_ps(p, LoadHalfs(scales + token));
}

// The packs interleave within 128-bit lanes, so that token quad 4 * v + l lies in dword 4 * l + v.
constexpr int DwordOfQuad(int quad) { return 4 * (quad & 3) + (quad >> 2); }

TURBOQUANT_INLINE __m512i PackCodes(const __m512i (&codes)[kMaxVectors]) {
  return _mm512_packus_epi16(_mm512_packus_epi32(codes[0], codes[1]),
                             _mm512_packus_epi32(codes[2], codes[3]));
}

// sum_t u8[t] * zp[t].
TURBOQUANT_INLINE float ZeroPointSum(const __m512i (&codes)[kMaxVectors], int vectors,
                                     const uint16_t* zero_points) {
  __m512 sum = _mm512_setzero_ps();
  for (int v = 0; v < vectors; ++v) {
    sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(codes[v]), LoadHalfs(zero_points + v * kLanes), sum);
  }
  return Sum(sum);
}

// scales and zero_points: those of the group; scales may be null.
template <int kBias, bool kZeroPoints>
void CodeRow(const PvArgs& args, int r, const uint16_t* scales, const uint16_t* zero_points,
             CodedP& p) {
  const int vectors = args.num_tokens / kLanes;
  __m512 pv[kMaxVectors];
  __m512 max = _mm512_setzero_ps();
  for (int v = 0; v < vectors; ++v) {
    pv[v] = ScaledP(args, r, v * kLanes, scales);
    max = _mm512_max_ps(pv[v], max);  // a NaN takes no part
  }
  const float row_max = Max(max);
  const bool empty = row_max < kTinyMax;
  const __m512 inv_step = _mm512_set1_ps(empty ? 0.0f : 255.0f / row_max);
  __m512i codes[kMaxVectors];
  for (int v = 0; v < kMaxVectors; ++v) {
    codes[v] = _mm512_setzero_si512();
    if (v >= vectors) continue;
    // Not positive: 0. A NaN, too.
    const __mmask16 positive = _mm512_cmp_ps_mask(pv[v], _mm512_setzero_ps(), _CMP_GT_OQ);
    codes[v] = _mm512_maskz_cvtps_epi32(positive, _mm512_mul_ps(pv[v], inv_step));
  }
  const __m512i packed = PackCodes(codes);
  _mm512_store_si512(p.codes[r], packed);
  p.step[r] = empty ? 0.0f : row_max / 255.0f;
  p.offset[r] = kZeroPoints ? ZeroPointSum(codes, vectors, zero_points) : 0.0f;
  p.bias[r] =
      kBias == 0
          ? 0
          : -kBias * Sum(_mm512_dpbusd_epi32(_mm512_setzero_si512(), packed, _mm512_set1_epi8(1)));
}

// What a pass works on: rows from row on, columns of 16 channels from column on.
struct Pass {
  const PvArgs& args;
  int row, column;
  bool prefetch;
};

TURBOQUANT_INLINE size_t LineOffset(const PvArgs& args, int line, int column) {
  return (static_cast<size_t>(line) * static_cast<size_t>(args.head_dim / kLanes) +
          static_cast<size_t>(column)) *
         kLineBytes;
}

TURBOQUANT_INLINE void PrefetchLines(const PvArgs& args, size_t offset, int columns) {
  for (int c = 0; c < columns; ++c)
    Prefetch(args.prefetch + offset + static_cast<size_t>(c) * kLineBytes);
}

// out = out * rescale + x for 16 channels of a row. Not fused, as in the scalar rows.
TURBOQUANT_INLINE void Accumulate(const PvArgs& args, int row, int column, __m512 x) {
  float* out =
      args.out + static_cast<size_t>(row) * static_cast<size_t>(args.head_dim) + column * kLanes;
  const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(out), _mm512_set1_ps(args.rescale[row]));
  _mm512_storeu_ps(out, _mm512_add_ps(old, x));
}

template <typename Lines, int kRows, int kColumns>
void IntegerPass(const Pass& pass, const CodedP& p) {
  const PvArgs& args = pass.args;
  const int units = args.num_tokens / (4 * Lines::kPlanes);
  const uint8_t* rows = p.codes[pass.row];
  __m512i acc[kRows][kColumns];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) acc[r][c] = _mm512_setzero_si512();
  }
  constexpr size_t kUnitBytes = size_t{Lines::kLines} * kLineBytes;
  for (int unit = 0; unit < units; ++unit) {
    const size_t offset = LineOffset(args, unit, pass.column) * Lines::kLines;
    if (pass.prefetch) PrefetchLines(args, offset, kColumns * Lines::kLines);
    Unrolled<Lines::kPlanes>([&]<int kPlane>() TURBOQUANT_INLINE_LAMBDA {
      const uint8_t* quad = rows + 4 * DwordOfQuad(unit * Lines::kPlanes + kPlane);
      __m512i codes[kColumns];
      for (int c = 0; c < kColumns; ++c) {
        codes[c] =
            Lines::template Plane<kPlane>(args.v + offset + static_cast<size_t>(c) * kUnitBytes);
      }
      for (int r = 0; r < kRows; ++r) {
        const __m512i row = _mm512_set1_epi32(LoadI32(quad + r * kMaxTileTokens));
        for (int c = 0; c < kColumns; ++c)
          acc[r][c] = _mm512_dpbusd_epi32(acc[r][c], row, codes[c]);
      }
    });
  }
  for (int r = 0; r < kRows; ++r) {
    const int row = pass.row + r;
    for (int c = 0; c < kColumns; ++c) {
      const __m512i levels =
          _mm512_add_epi32(Times<Lines::kMult>(acc[r][c]), _mm512_set1_epi32(p.bias[row]));
      const __m512 sum = _mm512_sub_ps(_mm512_cvtepi32_ps(levels), _mm512_set1_ps(p.offset[row]));
      Accumulate(args, row, pass.column + c, _mm512_mul_ps(sum, _mm512_set1_ps(p.step[row])));
    }
  }
}

template <typename Lines, int kRows, int kColumns>
void FloatPass(const Pass& pass, const FloatP& p) {
  constexpr int kSteps = Lines::kSteps, kParts = Lines::kParts;
  const PvArgs& args = pass.args;
  const float* rows = p.values[pass.row];
  __m512 acc[kRows][kColumns][kParts];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      for (int part = 0; part < kParts; ++part) acc[r][c][part] = _mm512_setzero_ps();
    }
  }
  for (int line = 0; line < args.num_tokens / Lines::kCodes; ++line) {
    const size_t offset = LineOffset(args, line, pass.column);
    if (pass.prefetch) PrefetchLines(args, offset, kColumns);
    for (int c = 0; c < kColumns; ++c) {
      __m512 x[kSteps][kParts];
      Lines::Load(args.v + offset + static_cast<size_t>(c) * kLineBytes, x);
      for (int step = 0; step < kSteps; ++step) {
        for (int r = 0; r < kRows; ++r) {
          const __m512 values =
              Lines::RowValues(rows + r * kMaxTileTokens + line * Lines::kCodes, step);
          for (int part = 0; part < kParts; ++part) {
            acc[r][c][part] = _mm512_fmadd_ps(x[step][part], values, acc[r][c][part]);
          }
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      const __m512 sum = _mm512_mul_ps(Lines::Merge(acc[r][c]), _mm512_set1_ps(Lines::kFactor));
      Accumulate(args, pass.row + r, pass.column + c, sum);
    }
  }
}

// The two families: how rows of p are prepared, and which pass a block of rows and columns takes.
template <typename Lines, int kBias, bool kZeroPoints>
struct IntegerFormat {
  using P = CodedP;
  // At most 16 accumulators, 8 where the compiler keeps a line for several planes.
  static constexpr int MaxColumns(int rows) {
    return (rows <= 2 ? 8 : 4) / (Lines::kPlanes <= 2 ? 1 : 2);
  }
  static void Prepare(const PvArgs& args, int r, const uint16_t* scales,
                      const uint16_t* zero_points, P& p) {
    CodeRow<kBias, kZeroPoints>(args, r, scales, zero_points, p);
  }
  template <int kRows, int kColumns>
  static void Run(const Pass& pass, const P& p) {
    IntegerPass<Lines, kRows, kColumns>(pass, p);
  }
};
template <typename Lines>
struct FloatFormat {
  using P = FloatP;
  static constexpr int MaxColumns(int rows) {
    const int parts = rows * Lines::kParts;  // a column; a pass has at most 16 accumulators
    return parts * Lines::kSteps <= 2 ? 8 : (parts <= 4 ? 4 : 2);
  }
  static void Prepare(const PvArgs& args, int r, const uint16_t* scales, const uint16_t*, P& p) {
    for (int token = 0; token < args.num_tokens; token += kLanes) {
      const __m512 pv = ScaledP(args, r, token, scales);
      _mm512_store_ps(p.values[r] + token, Lines::kCodes == 4 ? ToFp8Order(pv) : pv);
    }
  }
  template <int kRows, int kColumns>
  static void Run(const Pass& pass, const P& p) {
    FloatPass<Lines, kRows, kColumns>(pass, p);
  }
};

template <typename Format, int kRows>
void RowBlock(const PvArgs& args, int row, int first_column, int last_column,
              const typename Format::P& p) {
  for (int column = first_column; column < last_column;) {
    const int left = last_column - column;
    const Pass pass = {.args = args,
                       .row = row,
                       .column = column,
                       .prefetch = args.prefetch != nullptr && row == 0};
    if constexpr (Format::MaxColumns(kRows) >= 8) {
      if (left >= 8) {
        Format::template Run<kRows, 8>(pass, p);
        column += 8;
        continue;
      }
    }
    if constexpr (Format::MaxColumns(kRows) >= 4) {
      if (left >= 4) {
        Format::template Run<kRows, 4>(pass, p);
        column += 4;
        continue;
      }
    }
    if (left >= 2) {
      Format::template Run<kRows, 2>(pass, p);
      column += 2;
    } else {
      Format::template Run<kRows, 1>(pass, p);
      column += 1;
    }
  }
}

template <typename Format>
void Pv(const PvArgs& args) {
  const int group_columns = args.group_size / kLanes;
  typename Format::P p;
  for (int first = 0; first < args.head_dim / kLanes; first += group_columns) {
    const int last = first + group_columns;
    const size_t scale_at =
        static_cast<size_t>(first / group_columns) * static_cast<size_t>(args.scale_stride);
    const uint16_t* scales = args.scales == nullptr ? nullptr : args.scales + scale_at;
    const uint16_t* zero_points =
        args.zero_points == nullptr ? nullptr : args.zero_points + scale_at;
    for (int r = 0; r < args.num_rows; ++r) Format::Prepare(args, r, scales, zero_points, p);
    for (int row = 0; row < args.num_rows;) {
      const int left = args.num_rows - row;
      if (left == 4 || left >= 7) {  // no block of one where 3 + 3, 3 + 2 or 4 + 3 would do
        RowBlock<Format, 4>(args, row, first, last, p);
        row += 4;
      } else if (left >= 3) {
        RowBlock<Format, 3>(args, row, first, last, p);
        row += 3;
      } else if (left == 2) {
        RowBlock<Format, 2>(args, row, first, last, p);
        row += 2;
      } else {
        RowBlock<Format, 1>(args, row, first, last, p);
        row += 1;
      }
    }
  }
}

template <KvCacheDtype kDtype>
void PvNarrow(const PvArgs& args) {
  using Lines = NarrowLines<kDtype, false>;
  Pv<IntegerFormat<Lines, Lines::kBias, false>>(args);
}

}  // namespace

void PvF32(const PvArgs& args) { Pv<FloatFormat<LinesF32>>(args); }
void PvF16(const PvArgs& args) { Pv<FloatFormat<LinesF16>>(args); }
void PvBf16(const PvArgs& args) { Pv<FloatFormat<LinesBf16>>(args); }
void PvInt8(const PvArgs& args) { Pv<IntegerFormat<Lines8, 0, false>>(args); }
void PvFp8E4m3(const PvArgs& args) { Pv<FloatFormat<LinesE4m3>>(args); }
void PvFp8E5m2(const PvArgs& args) { Pv<FloatFormat<LinesE5m2>>(args); }
void PvInt6(const PvArgs& args) { PvNarrow<KvCacheDtype::kInt6>(args); }
void PvInt5(const PvArgs& args) { PvNarrow<KvCacheDtype::kInt5>(args); }
void PvInt4(const PvArgs& args) { PvNarrow<KvCacheDtype::kInt4>(args); }
void PvInt3(const PvArgs& args) { PvNarrow<KvCacheDtype::kInt3>(args); }
void PvInt2(const PvArgs& args) { PvNarrow<KvCacheDtype::kInt2>(args); }
void PvInt4Sym(const PvArgs& args) { Pv<IntegerFormat<Lines4, 8, false>>(args); }
void PvInt4Asym(const PvArgs& args) { Pv<IntegerFormat<Lines4, 0, true>>(args); }

}  // namespace turboquant::avx512
