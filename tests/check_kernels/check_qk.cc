// prepare_q and qk, always together: what one writes only the other can read.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "check.h"

namespace turboquant::check {
namespace {

constexpr size_t kMaxLineBytes = size_t{kMaxTileTokens} * kMaxHeadDim * 4;

// vdpbf16ps rows: q is split into two bf16 terms, |q - hi - lo| <= 2^-16 |q|, and subnormal
// factors, products and sums count as 0.
bool HasBf16Products(const KernelRow& row) {
  return row.requires_features.avx512_bf16 && row.dtype == KvCacheDtype::kBf16;
}

class QkBench {
 public:
  QkBench(const KernelRow& prepare, const KernelRow& qk)
      : prepare_(prepare),
        qk_(qk),
        q_(size_t{kMaxTileRows} * (kMaxHeadDim + 8) * 4 + 64),
        channel_scales_(kMaxHeadDim * 4 + 64),
        prepared_(size_t{kMaxTileRows} * PreparedQBytes(kMaxHeadDim, 16)),
        lines_(kMaxLineBytes),
        next_lines_(kMaxLineBytes),
        scores_(size_t{kMaxTileRows} * kMaxTileTokens * 4 + 64),
        offsets_(size_t{kMaxTileRows} * 4) {}

  void MakeTile(const TileCase& c, bool one_power_of_two, Rng& rng) {
    case_ = c;
    shape_ = {KvSide::kKey, c.num_tokens, c.head_dim};
    lines = lines_.Place(LineBytes(c.dtype, shape_), 0);
    FillCodes(c.dtype, shape_, c.codes, rng, lines);
    next_lines = next_lines_.Place(LineBytes(c.dtype, shape_), 0);
    tile_scales = scale_buffers_.Fill(c, one_power_of_two, rng);
    q_stride = static_cast<size_t>(c.head_dim) + (rng.Below(2) == 0 ? 0 : 5);
    const size_t slack = static_cast<size_t>(rng.Below(2) * rng.Below(16));
    q = q_.PlaceArray<float>(
        q_stride * static_cast<size_t>(c.num_rows - 1) + static_cast<size_t>(c.head_dim), slack);
    channel_scales = nullptr;
    if (rng.Below(2) == 0) {
      channel_scales = channel_scales_.PlaceArray<float>(static_cast<size_t>(c.head_dim), slack);
      for (int i = 0; i < c.head_dim; ++i)
        channel_scales[i] = static_cast<float>(0.1 + rng.Uniform());
    }
    offsets = nullptr;
    if (!one_power_of_two && rng.Below(2) == 0) {
      offsets = offsets_.PlaceArray<float>(static_cast<size_t>(c.num_rows));
      for (int r = 0; r < c.num_rows; ++r) offsets[r] = static_cast<float>(rng.Gaussian() * 40);
    }
    scale = static_cast<float>(1 / std::sqrt(c.head_dim));
    score_slack = slack;
  }

  // Prepares rows [first_row, first_row + num_rows) of q and multiplies them; scores
  // [num_rows][kMaxTileTokens].
  float* Run(int first_row, int num_rows, bool prefetch) {
    const size_t row_bytes = PreparedQBytes(case_.head_dim, case_.group_size);
    uint8_t* prepared = prepared_.Place(static_cast<size_t>(num_rows) * row_bytes, 0);
    prepare_.prepare_q({.q = q + static_cast<size_t>(first_row) * q_stride,
                        .q_stride = q_stride,
                        .num_rows = num_rows,
                        .head_dim = case_.head_dim,
                        .group_size = case_.group_size,
                        .scale = scale,
                        .channel_scales = channel_scales,
                        .out = prepared});
    float* scores =
        scores_.PlaceArray<float>(static_cast<size_t>(num_rows) * kMaxTileTokens, score_slack);
    qk_.qk({.q = prepared,
            .k = lines,
            .scales = tile_scales.scales,
            .zero_points = tile_scales.zero_points,
            .scale_stride = tile_scales.stride,
            .num_rows = num_rows,
            .num_tokens = case_.num_tokens,
            .head_dim = case_.head_dim,
            .group_size = case_.group_size,
            .scores = scores,
            .offsets = offsets == nullptr ? nullptr : offsets + first_row,
            .prefetch = prefetch ? next_lines : nullptr});
    return scores;
  }

  bool GuardsIntact(RowCheck& check) const {
    return check.ExpectGuards(prepared_, "prepared queries") &&
           check.ExpectGuards(scores_, "scores");
  }

  float Folded(int row, int channel) const {
    const float scaled =
        q[static_cast<size_t>(row) * q_stride + static_cast<size_t>(channel)] * scale;
    return channel_scales == nullptr ? scaled : scaled * channel_scales[channel];
  }
  const TileShape& shape() const { return shape_; }

  uint8_t *lines = nullptr, *next_lines = nullptr;
  TileScales tile_scales;
  float* q = nullptr;
  float* channel_scales = nullptr;
  float* offsets = nullptr;
  size_t q_stride = 0, score_slack = 0;
  float scale = 1;

 private:
  const KernelRow& prepare_;
  const KernelRow& qk_;
  TileCase case_ = {};
  TileShape shape_ = {};
  ScaleBuffers scale_buffers_;
  GuardedBuffer q_, channel_scales_, prepared_, lines_, next_lines_, scores_, offsets_;
};

// q codes of one row by the rule of kernel_table.h; scale 0 or NaN where a row has none.
struct OracleQ {
  double scale = 1;
  std::vector<double> values;  // integer formats: codes; else q'
  OracleQ(const QkBench& bench, const TileCase& c, int row)
      : values(static_cast<size_t>(c.head_dim)) {
    float max = 0;
    bool finite = true;
    for (int i = 0; i < c.head_dim; ++i) {
      const float value = bench.Folded(row, i);
      finite = finite && std::isfinite(value);
      max = std::max(max, std::fabs(value));
      values[static_cast<size_t>(i)] = static_cast<double>(value);
    }
    if (!IsInteger(c.dtype)) return;
    const float sq = !finite          ? std::numeric_limits<float>::quiet_NaN()
                     : max < kTinyMax ? 0.0f
                                      : max / (IsNarrow(c.dtype) ? 127.0f : 32512.0f);
    scale = static_cast<double>(sq);
    for (double& value : values)
      value = sq > 0 ? static_cast<double>(std::rint(static_cast<float>(value) / sq)) : 0;
  }
};

struct Expected {
  double value = 0, bound = 0;
};

// Score in exact arithmetic (double holds every integer sum here). Bounds, u = 2^-24:
//   integers: the int32 sum is exact; its conversion, the zero point's product and difference, the
//   scale, the sum over
//     groups and sq round once each: (groups + 5) u sum_g (|acc_g| + |zp_g| |sum q|) scale_g sq
//   floats: any order of a sum of n products: (n + 3) u sum |q' k| scale
//   an offset: u (|score| + |offset|) in addition
//   vdpbf16ps: 2^-16 sum |q' k| and 2^-126 sum (|q'| + 2 |k| + 2) in addition
Expected OracleScore(const QkBench& bench, const TileCase& c, const OracleQ& q, const double* codes,
                     int row, int token, bool bf16_products) {
  Expected e;
  double magnitude = 0, flushed = 0;
  const int groups = c.head_dim / c.group_size;
  for (int g = 0; g < groups; ++g) {
    double acc = 0, absolute = 0, sum_q = 0;
    for (int i = g * c.group_size; i < (g + 1) * c.group_size; ++i) {
      const double value = q.values[static_cast<size_t>(i)];
      acc += value * codes[i];
      absolute += std::fabs(value * codes[i]);
      sum_q += value;
      if (bf16_products) flushed += 0x1p-126 * (std::fabs(value) + 2 * std::fabs(codes[i]) + 2);
    }
    const double zero = bench.tile_scales.ZeroPoint(g, token) * sum_q;
    const double scale = bench.tile_scales.Scale(g, token) * q.scale;
    e.value += (acc - zero) * scale;
    magnitude += (IsInteger(c.dtype) ? std::fabs(acc) + std::fabs(zero) : absolute) * scale;
  }
  const double roundings = IsInteger(c.dtype) ? groups + 5 : c.head_dim + 3;
  e.bound = (roundings * kRoundoff + (bf16_products ? 0x1p-16 : 0)) * magnitude + flushed + 1e-38;
  if (bench.offsets != nullptr) {
    const auto offset = static_cast<double>(bench.offsets[row]);
    e.bound += kRoundoff * (std::fabs(e.value) + std::fabs(offset)) + kRoundoff * magnitude;
    e.value += offset;
  }
  return e;
}

void CheckScores(RowCheck& check, const QkBench& bench, const TileCase& c, const float* scores) {
  const bool bf16_products = HasBf16Products(check.row());
  std::vector<OracleQ> rows;
  for (int r = 0; r < c.num_rows; ++r) rows.emplace_back(bench, c, r);
  std::vector<double> codes(static_cast<size_t>(c.head_dim));
  for (int t = 0; t < c.num_tokens; ++t) {
    for (int i = 0; i < c.head_dim; ++i)
      codes[static_cast<size_t>(i)] = ReadCode(c.dtype, bench.shape(), bench.lines, t, i);
    for (int r = 0; r < c.num_rows; ++r) {
      const Expected e =
          OracleScore(bench, c, rows[static_cast<size_t>(r)], codes.data(), r, t, bf16_products);
      const double actual = static_cast<double>(scores[r * kMaxTileTokens + t]);
      if (!check.ExpectNear(actual, e.value, e.bound, fmt::format("row {} token {}", r, t))) return;
    }
  }
  for (int r = 0; r < c.num_rows; ++r) {
    const std::vector<uint8_t> untouched(static_cast<size_t>(kMaxTileTokens - c.num_tokens) * 4,
                                         GuardedBuffer::kPattern);
    check.ExpectBytes(scores + r * kMaxTileTokens + c.num_tokens, untouched.data(),
                      untouched.size(), fmt::format("row {} beyond its tokens", r));
  }
}

// Each row alone gives the same bits, with and without prefetch.
void CheckRowsAlone(RowCheck& check, QkBench& bench, const TileCase& c,
                    const std::vector<float>& scores) {
  for (int r = 0; r < c.num_rows && !check.failed(); ++r) {
    const float* alone = bench.Run(r, 1, !c.prefetch);
    check.ExpectBytes(alone, scores.data() + r * kMaxTileTokens,
                      static_cast<size_t>(c.num_tokens) * 4, fmt::format("row {} alone", r));
  }
}

void FillQ(QkBench& bench, const TileCase& c, Rng& rng) {
  for (int r = 0; r < c.num_rows; ++r) {
    const double size = std::exp2(rng.Uniform() * 12 - 4);
    const int odd = rng.Below(24);
    for (int i = 0; i < c.head_dim; ++i) {
      double value = Draw(c.rows, i, rng) * size;
      if (odd == 0) value = 0;
      if (odd == 1) value *= 1e-36;
      bench.q[static_cast<size_t>(r) * bench.q_stride + static_cast<size_t>(i)] =
          static_cast<float>(value);
    }
    float& one = bench.q[static_cast<size_t>(r) * bench.q_stride +
                         static_cast<size_t>(rng.Below(c.head_dim))];
    if (odd == 2) one = std::numeric_limits<float>::quiet_NaN();
    if (odd == 3 && IsInteger(c.dtype)) one = std::numeric_limits<float>::infinity();
  }
}

// Three channels at most differ from zero and all scales are one power of two: every intermediate
// result of an integer format is exact but the last product, so that all rows must give the same
// bits.
void CheckExactCase(RowCheck& check, const QkBench& bench, const TileCase& c, const float* scores) {
  for (int r = 0; r < c.num_rows; ++r) {
    const OracleQ q(bench, c, r);
    for (int t = 0; t < c.num_tokens; ++t) {
      double sum = 0;
      for (int i = 0; i < c.head_dim; ++i) {
        sum += q.values[static_cast<size_t>(i)] *
               ReadCode(c.dtype, bench.shape(), bench.lines, t, i) *
               bench.tile_scales.Scale(i / c.group_size, t);
      }
      const float expected = static_cast<float>(sum) * static_cast<float>(q.scale);
      const double actual = static_cast<double>(scores[r * kMaxTileTokens + t]);
      if (!check.ExpectNear(actual, static_cast<double>(expected), 0,
                            fmt::format("row {} token {}", r, t)))
        return;
    }
  }
}

}  // namespace

void CheckQk(RowCheck& check) {
  QkBench bench(PartnerRow(check.row()), check.row());
  ForTileCases(check.row().dtype, KvSide::kKey, [&](const TileCase& c) {
    if (!check.Begin(c.ToString())) return;
    Rng rng(check.case_seed());
    bench.MakeTile(c, false, rng);
    FillQ(bench, c, rng);
    const float* result = bench.Run(0, c.num_rows, c.prefetch);
    if (!bench.GuardsIntact(check)) return;
    CheckScores(check, bench, c, result);
    const std::vector<float> scores(result, result + c.num_rows * kMaxTileTokens);
    CheckRowsAlone(check, bench, c, scores);
  });
}

// Every channel of every row is read back through a K tile with one code 1: token t holds it at
// channel first + t.
void CheckPrepareQ(RowCheck& check) {
  QkBench bench(check.row(), PartnerRow(check.row()));
  ForTileCases(check.row().dtype, KvSide::kKey, [&](TileCase c) {
    c.codes = DataKind::kZero;
    if (!check.Begin(c.ToString())) return;
    Rng rng(check.case_seed());
    bench.MakeTile(c, true, rng);
    const bool sparse = IsInteger(c.dtype) && rng.Below(2) == 0;
    FillQ(bench, c, rng);
    if (sparse) {
      for (int r = 0; r < c.num_rows; ++r) {
        const int keep = rng.Below(c.head_dim);
        for (int i = 0; i < c.head_dim; ++i) {
          float& value = bench.q[static_cast<size_t>(r) * bench.q_stride + static_cast<size_t>(i)];
          if (i != keep && i != (keep + 7) % c.head_dim && i != (keep + 12) % c.head_dim) value = 0;
        }
      }
      FillCodes(c.dtype, bench.shape(), DataKind::kGaussian, rng, bench.lines);
      const float* scores = bench.Run(0, c.num_rows, c.prefetch);
      if (bench.GuardsIntact(check)) CheckExactCase(check, bench, c, scores);
      return;
    }
    for (int first = 0; first < c.head_dim && !check.failed(); first += c.num_tokens) {
      for (int t = 0; t < c.num_tokens; ++t) {
        for (int i = 0; i < c.head_dim; ++i)
          WriteCode(c.dtype, bench.shape(), bench.lines, t, i, i == first + t ? 1 : 0);
      }
      const float* scores = bench.Run(0, c.num_rows, c.prefetch);
      if (bench.GuardsIntact(check)) CheckScores(check, bench, c, scores);
    }
  });
}

}  // namespace turboquant::check
