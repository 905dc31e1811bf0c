// Scores of a tile. A pass takes kRows rows x kVectors vectors of 16 tokens, so that a line that
// was loaded (and widened) serves all rows of the pass. Per channel group the sums are flushed into
// args.scores with the group's scales; every score has one chain of additions in channel order,
// whatever the pass around it looks like.
#include "kernels/avx512/kernels.h"
#include "kernels/avx512/lines.h"
#include "kernels/avx512/narrow.h"

namespace turboquant::avx512 {
namespace {

// What a pass works on: rows from row on, tokens from token on.
struct Pass {
  const QkArgs& args;
  int row, token;
  const uint8_t* q;         // prepared row `row`
  size_t q_stride;          // bytes
  const uint8_t* k;         // first line of the tokens
  const uint8_t* prefetch;  // beside k, or null
};

// Multiplies a group's term with the scales and adds it to the scores. Sum of terms in group order,
// as the scalar rows do.
TURBOQUANT_INLINE void Flush(const Pass& pass, int r, int v, int group, __m512 term,
                             __m512 factor) {
  const QkArgs& args = pass.args;
  const int token = pass.token + v * kLanes;
  const size_t scale_at = static_cast<size_t>(group) * static_cast<size_t>(args.scale_stride) +
                          static_cast<size_t>(token);
  float* scores = args.scores + (pass.row + r) * kMaxTileTokens + token;
  if (args.scales != nullptr) term = _mm512_mul_ps(term, LoadHalfs(args.scales + scale_at));
  if (group > 0) term = _mm512_add_ps(_mm512_loadu_ps(scores), term);
  const bool last = (group + 1) * args.group_size == args.head_dim;
  if (last) {
    term = _mm512_mul_ps(term, factor);
    if (args.offsets != nullptr) {
      term = _mm512_add_ps(term, _mm512_set1_ps(args.offsets[pass.row + r]));
    }
  }
  _mm512_storeu_ps(scores, term);
}

// Integer formats. q_int = 256 * hi + lo: two vpdpbusd accumulators per row and vector, hi and lo;
// the bias of the codes is taken off by the start value of lo. All of it is arithmetic modulo 2^32,
// and the result fits: |sum| <= 32512 * 128 * 512 < 2^31 for every byte pattern and head_dim <=
// 512.
template <typename Lines, int kBias, bool kZeroPoints, int kRows, int kVectors>
void IntegerPass(const Pass& pass) {
  constexpr int kLineChannels = 4 * Lines::kPlanes;
  const QkArgs& args = pass.args;
  const int lines = args.head_dim / kLineChannels;
  const int group_lines = args.group_size / kLineChannels;
  const size_t vector_bytes = static_cast<size_t>(lines) * kLineBytes;
  const uint8_t* tail = pass.q + 2 * static_cast<size_t>(args.head_dim);  // sq, sums
  for (int group = 0; group * group_lines < lines; ++group) {
    __m512i hi[kRows][kVectors], lo[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      const int32_t sum = LoadI32(tail + static_cast<size_t>(r) * pass.q_stride + 4 * (group + 1));
      for (int v = 0; v < kVectors; ++v) {
        hi[r][v] = _mm512_setzero_si512();
        lo[r][v] = _mm512_set1_epi32(-kBias * sum);
      }
    }
    for (int line = group * group_lines; line < (group + 1) * group_lines; ++line) {
      const uint8_t* k = pass.k + static_cast<size_t>(line) * kLineBytes;
      if (pass.prefetch != nullptr) {
        const uint8_t* next = pass.prefetch + static_cast<size_t>(line) * kLineBytes;
        for (int v = 0; v < kVectors; ++v) Prefetch(next + static_cast<size_t>(v) * vector_bytes);
      }
      Unrolled<Lines::kPlanes>([&]<int kPlane>() TURBOQUANT_INLINE_LAMBDA {
        const uint8_t* q = pass.q + 8 * (line * Lines::kPlanes + kPlane);
        __m512i codes[kVectors];
        for (int v = 0; v < kVectors; ++v) {
          codes[v] = Lines::template Plane<kPlane>(k + static_cast<size_t>(v) * vector_bytes);
        }
        for (int r = 0; r < kRows; ++r) {
          const uint8_t* row = q + static_cast<size_t>(r) * pass.q_stride;
          const __m512i row_hi = _mm512_set1_epi32(LoadI32(row));
          const __m512i row_lo = _mm512_set1_epi32(LoadI32(row + 4));
          for (int v = 0; v < kVectors; ++v) {
            hi[r][v] = _mm512_dpbusd_epi32(hi[r][v], codes[v], row_hi);
            lo[r][v] = _mm512_dpbusd_epi32(lo[r][v], codes[v], row_lo);
          }
        }
      });
    }
    for (int r = 0; r < kRows; ++r) {
      const uint8_t* row_tail = tail + static_cast<size_t>(r) * pass.q_stride;
      const __m512 scale = _mm512_set1_ps(LoadF32(row_tail));
      for (int v = 0; v < kVectors; ++v) {
        __m512 term =
            _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(hi[r][v], 8), lo[r][v]));
        if constexpr (kZeroPoints) {
          const size_t at = static_cast<size_t>(group) * static_cast<size_t>(args.scale_stride) +
                            static_cast<size_t>(pass.token + v * kLanes);
          const __m512 sum =
              _mm512_set1_ps(static_cast<float>(LoadI32(row_tail + 4 * (group + 1))));
          term = _mm512_sub_ps(term, _mm512_mul_ps(LoadHalfs(args.zero_points + at), sum));
        }
        Flush(pass, r, v, group, term, scale);
      }
    }
  }
}

// Narrow formats: q is one byte per channel under one scale, and there is one channel group.
template <typename Lines, int kRows, int kVectors>
void NarrowPass(const Pass& pass) {
  const QkArgs& args = pass.args;
  const int units = args.head_dim / (4 * Lines::kPlanes);
  constexpr size_t kUnitBytes = size_t{Lines::kLines} * kLineBytes;
  const size_t vector_bytes = static_cast<size_t>(units) * kUnitBytes;
  const uint8_t* tail = pass.q + static_cast<size_t>(args.head_dim);  // sq, sum
  __m512i acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_setzero_si512();
  }
  for (int unit = 0; unit < units; ++unit) {
    const size_t offset = static_cast<size_t>(unit) * kUnitBytes;
    if (pass.prefetch != nullptr) {
      for (int v = 0; v < kVectors; ++v) {
        const uint8_t* next = pass.prefetch + offset + static_cast<size_t>(v) * vector_bytes;
        for (int line = 0; line < Lines::kLines; ++line) Prefetch(next + line * kLineBytes);
      }
    }
    Unrolled<Lines::kPlanes>([&]<int kPlane>() TURBOQUANT_INLINE_LAMBDA {
      __m512i codes[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        codes[v] =
            Lines::template Plane<kPlane>(pass.k + offset + static_cast<size_t>(v) * vector_bytes);
      }
      const uint8_t* q = pass.q + 4 * (unit * Lines::kPlanes + kPlane);
      for (int r = 0; r < kRows; ++r) {
        const __m512i row = _mm512_set1_epi32(LoadI32(q + static_cast<size_t>(r) * pass.q_stride));
        for (int v = 0; v < kVectors; ++v) {
          acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], codes[v], row);
        }
      }
    });
  }
  for (int r = 0; r < kRows; ++r) {
    const uint8_t* row_tail = tail + static_cast<size_t>(r) * pass.q_stride;
    const __m512i bias = _mm512_set1_epi32(Lines::kBias * LoadI32(row_tail + 4));
    const __m512 scale = _mm512_set1_ps(LoadF32(row_tail));
    for (int v = 0; v < kVectors; ++v) {
      const __m512i sum = _mm512_sub_epi32(Times<Lines::kMult>(acc[r][v]), bias);
      Flush(pass, r, v, 0, _mm512_cvtepi32_ps(sum), scale);
    }
  }
}

template <typename Lines, int kRows, int kVectors>
void FloatPass(const Pass& pass) {
  constexpr int kSteps = Lines::kSteps, kParts = Lines::kParts;
  const QkArgs& args = pass.args;
  const int lines = args.head_dim / Lines::kCodes;
  const int group_lines = args.group_size / Lines::kCodes;
  const size_t vector_bytes = static_cast<size_t>(lines) * kLineBytes;
  for (int group = 0; group * group_lines < lines; ++group) {
    __m512 acc[kRows][kVectors][kParts];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        for (int part = 0; part < kParts; ++part) acc[r][v][part] = _mm512_setzero_ps();
      }
    }
    for (int line = group * group_lines; line < (group + 1) * group_lines; ++line) {
      const uint8_t* k = pass.k + static_cast<size_t>(line) * kLineBytes;
      if (pass.prefetch != nullptr) {
        const uint8_t* next = pass.prefetch + static_cast<size_t>(line) * kLineBytes;
        for (int v = 0; v < kVectors; ++v) Prefetch(next + static_cast<size_t>(v) * vector_bytes);
      }
      const uint8_t* q = pass.q + 4 * static_cast<size_t>(line * Lines::kCodes);
      for (int v = 0; v < kVectors; ++v) {
        __m512 x[kSteps][kParts];
        Lines::Load(k + static_cast<size_t>(v) * vector_bytes, x);
        for (int step = 0; step < kSteps; ++step) {
          for (int r = 0; r < kRows; ++r) {
            const auto* row =
                reinterpret_cast<const float*>(q + static_cast<size_t>(r) * pass.q_stride);
            const __m512 values = Lines::RowValues(row, step);
            for (int part = 0; part < kParts; ++part) {
              acc[r][v][part] = _mm512_fmadd_ps(x[step][part], values, acc[r][v][part]);
            }
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        Flush(pass, r, v, group, Lines::Merge(acc[r][v]), _mm512_set1_ps(Lines::kFactor));
      }
    }
  }
}

// The three families: which pass a block of rows and tokens takes.
template <typename Lines, int kBias, bool kZeroPoints>
struct IntegerFormat {
  static constexpr int kUnitChannels = 4 * Lines::kPlanes, kUnitLines = 1;
  // 3 rows x 4 vectors x 2 accumulators = 24 of 32 registers; two planes a line leave room for 16.
  static constexpr int kMaxRows = 3;
  static constexpr int MaxVectors(int rows) { return Lines::kPlanes * rows <= 4 ? 4 : 2; }
  template <int kRows, int kVectors>
  static void Run(const Pass& pass) {
    IntegerPass<Lines, kBias, kZeroPoints, kRows, kVectors>(pass);
  }
};
template <KvCacheDtype kDtype>
struct NarrowFormatPasses {
  using Lines = NarrowLines<kDtype, true>;
  static constexpr int kUnitChannels = 4 * Lines::kPlanes, kUnitLines = Lines::kLines;
  static constexpr int kMaxRows = 4;
  // At most 16 accumulators, 8 where the compiler keeps a line for several planes.
  static constexpr int MaxVectors(int rows) { return Lines::kPlanes <= 2 || rows <= 2 ? 4 : 2; }
  template <int kRows, int kVectors>
  static void Run(const Pass& pass) {
    NarrowPass<Lines, kRows, kVectors>(pass);
  }
};
template <typename Lines>
struct FloatFormat {
  static constexpr int kUnitChannels = Lines::kCodes, kUnitLines = 1;
  static constexpr int kMaxRows = 4;  // at most 16 accumulators
  static constexpr int MaxVectors(int rows) { return Lines::kParts * rows <= 4 ? 4 : 2; }
  template <int kRows, int kVectors>
  static void Run(const Pass& pass) {
    FloatPass<Lines, kRows, kVectors>(pass);
  }
};

template <typename Format, int kRows>
void RowBlock(const QkArgs& args, int row) {
  const size_t q_stride = PreparedRowBytes(args.head_dim, args.group_size);
  const size_t vector_bytes =
      static_cast<size_t>(args.head_dim / Format::kUnitChannels * Format::kUnitLines) * kLineBytes;
  for (int token = 0; token < args.num_tokens;) {
    const int vectors = (args.num_tokens - token) / kLanes;
    const size_t offset = static_cast<size_t>(token / kLanes) * vector_bytes;
    const Pass pass = {
        .args = args,
        .row = row,
        .token = token,
        .q = static_cast<const uint8_t*>(args.q) + static_cast<size_t>(row) * q_stride,
        .q_stride = q_stride,
        .k = args.k + offset,
        .prefetch = args.prefetch == nullptr || row > 0 ? nullptr : args.prefetch + offset};
    if constexpr (Format::MaxVectors(kRows) == 4) {
      if (vectors >= 4) {
        Format::template Run<kRows, 4>(pass);
        token += 4 * kLanes;
        continue;
      }
    }
    if (vectors >= 2) {
      Format::template Run<kRows, 2>(pass);
      token += 2 * kLanes;
    } else {
      Format::template Run<kRows, 1>(pass);
      token += kLanes;
    }
  }
}

// Rows of the next block: as many as a pass takes, but no block of one where two of two or three
// would do.
constexpr int BlockRows(int left, int most) {
  return left == most + 1 ? (left + 1) / 2 : (left < most ? left : most);
}

template <typename Format>
void Qk(const QkArgs& args) {
  for (int row = 0; row < args.num_rows;) {
    const int rows = BlockRows(args.num_rows - row, Format::kMaxRows);
    if (rows == 1) RowBlock<Format, 1>(args, row);
    if (rows == 2) RowBlock<Format, 2>(args, row);
    if (rows == 3) RowBlock<Format, 3>(args, row);
    if constexpr (Format::kMaxRows > 3) {
      if (rows == 4) RowBlock<Format, 4>(args, row);
    }
    row += rows;
  }
}

}  // namespace

void QkF32(const QkArgs& args) { Qk<FloatFormat<LinesF32>>(args); }
void QkF16(const QkArgs& args) { Qk<FloatFormat<LinesF16>>(args); }
void QkBf16(const QkArgs& args) { Qk<FloatFormat<LinesBf16>>(args); }
void QkInt8(const QkArgs& args) { Qk<IntegerFormat<Lines8, 128, false>>(args); }
void QkFp8E4m3(const QkArgs& args) { Qk<FloatFormat<LinesE4m3>>(args); }
void QkFp8E5m2(const QkArgs& args) { Qk<FloatFormat<LinesE5m2>>(args); }
void QkInt6(const QkArgs& args) { Qk<NarrowFormatPasses<KvCacheDtype::kInt6>>(args); }
void QkInt5(const QkArgs& args) { Qk<NarrowFormatPasses<KvCacheDtype::kInt5>>(args); }
void QkInt4(const QkArgs& args) { Qk<NarrowFormatPasses<KvCacheDtype::kInt4>>(args); }
void QkInt3(const QkArgs& args) { Qk<NarrowFormatPasses<KvCacheDtype::kInt3>>(args); }
void QkInt2(const QkArgs& args) { Qk<NarrowFormatPasses<KvCacheDtype::kInt2>>(args); }
void QkInt4Sym(const QkArgs& args) { Qk<IntegerFormat<Lines4, 8, false>>(args); }
void QkInt4Asym(const QkArgs& args) { Qk<IntegerFormat<Lines4, 0, true>>(args); }

}  // namespace turboquant::avx512
