#include <fmt/format.h>

#include <cmath>

#include "check.h"

namespace turboquant::check {
namespace {

constexpr size_t kMaxLineBytes = size_t{kMaxTileTokens} * kMaxHeadDim * 4;

// vdpbf16ps rows: p is rounded to bf16 (2^-8), and subnormal factors, products and sums count as 0.
bool HasBf16Products(const KernelRow& row) {
  return row.requires_features.avx512_bf16 && row.dtype == KvCacheDtype::kBf16;
}

class PvBench {
 public:
  explicit PvBench(const KernelRow& row)
      : row_(row),
        p_(size_t{kMaxTileRows} * kMaxTileTokens * 4 + 64),
        rescale_(kMaxTileRows * 4),
        lines_(kMaxLineBytes),
        next_lines_(kMaxLineBytes),
        out_(size_t{kMaxTileRows} * kMaxHeadDim * 4 + 64) {}

  void MakeTile(const TileCase& c, Rng& rng) {
    case_ = c;
    shape_ = {KvSide::kValue, c.num_tokens, c.head_dim};
    lines = lines_.Place(LineBytes(c.dtype, shape_), 0);
    FillCodes(c.dtype, shape_, c.codes, rng, lines);
    next_lines_begin_ = next_lines_.Place(LineBytes(c.dtype, shape_), 0);
    tile_scales = scale_buffers_.Fill(c, false, rng);
    slack_ = static_cast<size_t>(rng.Below(2) * rng.Below(16));
    p = p_.PlaceArray<float>(static_cast<size_t>(c.num_rows) * kMaxTileTokens, slack_);
    rescale = rescale_.PlaceArray<float>(static_cast<size_t>(c.num_rows));
  }

  // Rows [first_row, first_row + num_rows); out0: what out holds before, for these rows.
  float* Run(int first_row, int num_rows, bool prefetch, const float* out0) {
    const size_t count = static_cast<size_t>(num_rows) * static_cast<size_t>(case_.head_dim);
    float* out = out_.PlaceArray<float>(count, slack_);
    std::copy(out0, out0 + count, out);
    row_.pv({.p = p + first_row * kMaxTileTokens,
             .v = lines,
             .scales = tile_scales.scales,
             .zero_points = tile_scales.zero_points,
             .scale_stride = tile_scales.stride,
             .num_rows = num_rows,
             .num_tokens = case_.num_tokens,
             .head_dim = case_.head_dim,
             .group_size = case_.group_size,
             .rescale = rescale + first_row,
             .out = out,
             .prefetch = prefetch ? next_lines_begin_ : nullptr});
    return out;
  }
  bool GuardsIntact(RowCheck& check) const { return check.ExpectGuards(out_, "out"); }
  const TileShape& shape() const { return shape_; }

  uint8_t* lines = nullptr;
  TileScales tile_scales;
  float* p = nullptr;
  float* rescale = nullptr;

 private:
  const KernelRow& row_;
  TileCase case_ = {};
  TileShape shape_ = {};
  uint8_t* next_lines_begin_ = nullptr;
  size_t slack_ = 0;
  ScaleBuffers scale_buffers_;
  GuardedBuffer p_, rescale_, lines_, next_lines_, out_;
};

enum class RowKind { kSoftmax, kOneHot, kZero, kTiny, kFlat, kLarge };

void FillRows(PvBench& bench, const TileCase& c, Rng& rng, std::vector<float>& out0) {
  const bool zero_out = rng.Below(2) == 0;
  for (float& value : out0) value = zero_out ? 0.0f : static_cast<float>(rng.Gaussian());
  for (int r = 0; r < c.num_rows; ++r) {
    const auto kind = static_cast<RowKind>(rng.Below(6));
    const int hot = rng.Below(c.num_tokens);
    for (int t = 0; t < c.num_tokens; ++t) {
      double p = 0;
      switch (kind) {
        case RowKind::kSoftmax:
          p = std::exp(-3 * std::fabs(rng.Gaussian()));
          break;
        case RowKind::kOneHot:
          p = t == hot ? 1 : 0;
          break;
        case RowKind::kZero:
          p = 0;
          break;
        case RowKind::kTiny:
          p = rng.Uniform() * 1e-36;
          break;
        case RowKind::kFlat:
          p = 1;
          break;
        case RowKind::kLarge:
          p = rng.Uniform() * 2980;
          break;
      }
      bench.p[r * kMaxTileTokens + t] = static_cast<float>(p);
    }
    bench.rescale[r] = std::array{1.0f, 0.0f, 0.3f}[static_cast<size_t>(rng.Below(3))];
  }
}

// The probabilities of one row over one channel group as the kernel is to use them.
struct OracleP {
  std::vector<double> values;  // integer formats: codes 0..255; else p * scale
  double step = 1;
  double zero_points = 0;  // sum of code * zero point
  double zero_points_magnitude = 0;

  OracleP(const PvBench& bench, const TileCase& c, int row, int group)
      : values(static_cast<size_t>(c.num_tokens)) {
    float max = 0;
    std::vector<float> pv(values.size());
    for (int t = 0; t < c.num_tokens; ++t) {
      const float p =
          bench.p[row * kMaxTileTokens + t] * static_cast<float>(bench.tile_scales.Scale(group, t));
      pv[static_cast<size_t>(t)] = p;
      max = std::max(max, p);
    }
    for (size_t t = 0; t < pv.size(); ++t) values[t] = static_cast<double>(pv[t]);
    if (!IsInteger(c.dtype)) return;
    const bool empty = max < kTinyMax;
    step = empty ? 0 : static_cast<double>(max / 255.0f);
    for (size_t t = 0; t < pv.size(); ++t) {
      values[t] = empty ? 0 : static_cast<double>(std::rint(pv[t] * (255.0f / max)));
      const double zero = values[t] * bench.tile_scales.ZeroPoint(group, static_cast<int>(t));
      zero_points += zero;
      zero_points_magnitude += std::fabs(zero);
    }
  }
};

// out * rescale + (acc - zero points) * step. Bounds, u = 2^-24:
//   int8, int4_sym, narrow: acc <= 255 * 127 * 64 < 2^24 is exact and so is its conversion; into an
//   empty out the product with step is
//     the only rounding, the same everywhere: equal bits. Otherwise 3 u (|out rescale| + |acc
//     step|).
//   int4_asym: the sum of n zero point terms rounds too: (n + 4) u (|acc| + sum |code zp|) step in
//   addition floats: any order of n products: (n + 3) u sum |p v| vdpbf16ps: 2^-8 sum |p v| and
//   2^-126 sum (|p| + |v| + 1) in addition
void CheckOut(RowCheck& check, const PvBench& bench, const TileCase& c, const float* out,
              const std::vector<float>& out0) {
  const double n = c.num_tokens;
  const bool bf16_products = HasBf16Products(check.row());
  std::vector<double> v(static_cast<size_t>(c.num_tokens));
  std::vector<OracleP> p;
  for (int i = 0; i < c.head_dim; ++i) {
    if (i % c.group_size == 0) {
      p.clear();
      for (int r = 0; r < c.num_rows; ++r) p.emplace_back(bench, c, r, i / c.group_size);
    }
    for (int t = 0; t < c.num_tokens; ++t)
      v[static_cast<size_t>(t)] = ReadCode(c.dtype, bench.shape(), bench.lines, t, i);
    for (int r = 0; r < c.num_rows; ++r) {
      const OracleP& row = p[static_cast<size_t>(r)];
      double acc = 0, absolute = 0, flushed = 0;
      for (size_t t = 0; t < v.size(); ++t) {
        acc += row.values[t] * v[t];
        absolute += std::fabs(row.values[t] * v[t]);
        if (bf16_products) flushed += 0x1p-126 * (std::fabs(row.values[t]) + std::fabs(v[t]) + 1);
      }
      const size_t at = static_cast<size_t>(r * c.head_dim + i);
      const double before = static_cast<double>(out0[at]) * static_cast<double>(bench.rescale[r]);
      const double term = (acc - row.zero_points) * row.step;
      double expected = before + term;
      double bound = 3 * kRoundoff * (std::fabs(before) + std::fabs(term)) + 1e-38;
      if (!IsInteger(c.dtype)) {
        bound += ((n + 3) * kRoundoff + (bf16_products ? 0x1p-8 : 0)) * absolute + flushed;
      } else if (c.dtype == KvCacheDtype::kInt4Asym) {
        bound += (n + 4) * kRoundoff * (std::fabs(acc) + row.zero_points_magnitude) * row.step;
      } else if (before == 0) {
        expected = static_cast<double>(static_cast<float>(acc) * static_cast<float>(row.step));
        bound = 0;
      }
      const double actual = static_cast<double>(out[at]);
      if (!check.ExpectNear(actual, expected, bound, fmt::format("row {} channel {}", r, i)))
        return;
    }
  }
}

}  // namespace

void CheckPv(RowCheck& check) {
  PvBench bench(check.row());
  ForTileCases(check.row().dtype, KvSide::kValue, [&](const TileCase& c) {
    if (!check.Begin(c.ToString())) return;
    Rng rng(check.case_seed());
    bench.MakeTile(c, rng);
    const size_t head_dim = static_cast<size_t>(c.head_dim);
    std::vector<float> out0(static_cast<size_t>(c.num_rows) * head_dim);
    FillRows(bench, c, rng, out0);
    const float* result = bench.Run(0, c.num_rows, c.prefetch, out0.data());
    if (!bench.GuardsIntact(check)) return;
    CheckOut(check, bench, c, result, out0);
    const std::vector<float> out(result, result + out0.size());
    for (int r = 0; r < c.num_rows && !check.failed(); ++r) {
      const size_t at = static_cast<size_t>(r) * head_dim;
      const float* alone = bench.Run(r, 1, !c.prefetch, out0.data() + at);
      check.ExpectBytes(alone, out.data() + at, head_dim * sizeof(float),
                        fmt::format("row {} alone", r));
    }
  });
}

}  // namespace turboquant::check
