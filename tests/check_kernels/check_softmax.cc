#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "check.h"

namespace turboquant::check {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr std::array kTokens = {16, 32, 48, 64};
constexpr std::array kRows = {1, 2, 3, 4, 5, 7, 8, 9, 16, 32};
constexpr std::array kSoftcaps = {0.0f, 50.0f, 3.0f};
constexpr int kRounds = 40;

struct State {
  std::vector<float> scores, max, sum, rescale;
  std::vector<int> begin, end;
};

class SoftmaxBench {
 public:
  explicit SoftmaxBench(const KernelRow& row)
      : row_(row),
        scores_(size_t{kMaxTileRows} * kMaxTileTokens * 4 + 64),
        begin_(kMaxTileRows * 4),
        end_(kMaxTileRows * 4),
        max_(kMaxTileRows * 4),
        sum_(kMaxTileRows * 4),
        rescale_(kMaxTileRows * 4) {}

  // Runs rows [first, first + n) of `in`, which has all tokens of every row filled.
  State Run(const State& in, int first, int n, int num_tokens, float softcap, size_t slack) {
    const auto place = [first, n]<typename T>(GuardedBuffer& buffer, const std::vector<T>& values) {
      T* placed = buffer.PlaceArray<T>(static_cast<size_t>(n));
      std::copy_n(values.begin() + first, n, placed);
      return placed;
    };
    float* scores = scores_.PlaceArray<float>(static_cast<size_t>(n) * kMaxTileTokens, slack);
    std::copy_n(in.scores.begin() + first * kMaxTileTokens, n * kMaxTileTokens, scores);
    const SoftmaxArgs args = {.scores = scores,
                              .begin = place(begin_, in.begin),
                              .end = place(end_, in.end),
                              .num_rows = n,
                              .num_tokens = num_tokens,
                              .logit_softcap = softcap,
                              .max = place(max_, in.max),
                              .sum = place(sum_, in.sum),
                              .rescale = rescale_.PlaceArray<float>(static_cast<size_t>(n))};
    row_.softmax(args);
    State out = in;
    out.scores.assign(scores, scores + n * kMaxTileTokens);
    out.max.assign(args.max, args.max + n);
    out.sum.assign(args.sum, args.sum + n);
    out.rescale.assign(args.rescale, args.rescale + n);
    return out;
  }
  bool GuardsIntact(RowCheck& check) const {
    return check.ExpectGuards(scores_, "scores") && check.ExpectGuards(max_, "max") &&
           check.ExpectGuards(sum_, "sum") && check.ExpectGuards(rescale_, "rescale");
  }

 private:
  const KernelRow& row_;
  GuardedBuffer scores_, begin_, end_, max_, sum_, rescale_;
};

State MakeState(int num_rows, int num_tokens, Rng& rng) {
  State s;
  for (int r = 0; r < num_rows; ++r) {
    const double spread = std::array{0.0, 1.0, 10.0, 200.0, 1e4}[static_cast<size_t>(rng.Below(5))];
    const double centre = rng.Gaussian() * spread;
    const int odd = rng.Below(16);
    for (int t = 0; t < kMaxTileTokens; ++t) {
      double logit = centre + rng.Gaussian() * spread;
      if (odd == 0) logit = static_cast<double>(kNone);
      if (odd == 1 && rng.Below(8) == 0) logit = static_cast<double>(kNone);
      if (odd == 2 && t == 7) logit = std::nan("");
      s.scores.push_back(static_cast<float>(logit));
    }
    const int a = rng.Below(num_tokens + 1), b = rng.Below(num_tokens + 1);
    const bool all = rng.Below(2) == 0;
    s.begin.push_back(all ? 0 : a);
    s.end.push_back(all ? num_tokens : b);  // begin >= end at times: nothing valid
    const bool fresh = rng.Below(3) == 0;
    // Near the logits, so that the lazy rule goes either way.
    s.max.push_back(fresh ? kNone : static_cast<float>(centre + rng.Gaussian() * 8));
    s.sum.push_back(fresh ? 0.0f : static_cast<float>(rng.Uniform() * 50));
    s.rescale.push_back(-1);
  }
  return s;
}

// Checks one row against exp in double, relative to the maximum that the kernel chose; the choice
// itself by the rule. Bounds, u = 2^-24: logit - max rounds once (u |logit - max|), exp has an
// error of 6 u (the vector polynomials have 3, libm less), the soft cap moves a logit by
// at most 8 u cap. A sum of n terms: (n + 2) u.
class RowOracle {
 public:
  RowOracle(RowCheck& check, const State& in, const State& out, int r, int num_tokens,
            float softcap)
      : check_(check),
        in_(in),
        out_(out),
        r_(r),
        num_tokens_(num_tokens),
        cap_(static_cast<double>(softcap)) {}

  void Check() {
    const double tile_max = TileMax();
    CheckMax(tile_max);
    const double max = static_cast<double>(out_.max[At()]);
    const double reference = std::isinf(max) ? 0 : max;
    double sum = 0;
    for (int t = 0; t < num_tokens_ && !check_.failed(); ++t) {
      const double p =
          static_cast<double>(out_.scores[At() * kMaxTileTokens + static_cast<size_t>(t)]);
      sum += p;
      const double distance = Logit(t) - reference;
      const double expected = Valid(t) ? std::exp(distance) : 0;
      const double bound =
          expected * ((std::fabs(distance) + 6) * kRoundoff + LogitBound()) + 0x1p-126;
      check_.ExpectNear(
          p, expected, bound,
          fmt::format("row {} token {} logit {:.9g} max {:.9g}", r_, t, Logit(t), max));
    }
    const double before =
        static_cast<double>(in_.sum[At()]) * static_cast<double>(out_.rescale[At()]);
    const double expected = before + sum;
    check_.ExpectNear(static_cast<double>(out_.sum[At()]), expected,
                      (num_tokens_ + 2) * kRoundoff * expected, fmt::format("sum of row {}", r_));
    const size_t tail = static_cast<size_t>(kMaxTileTokens - num_tokens_) * sizeof(float);
    check_.ExpectBytes(&out_.scores[At() * kMaxTileTokens] + num_tokens_,
                       &in_.scores[At() * kMaxTileTokens] + num_tokens_, tail,
                       fmt::format("row {} beyond its tokens", r_));
  }

 private:
  size_t At() const { return static_cast<size_t>(r_); }
  bool Valid(int t) const { return in_.begin[At()] <= t && t < in_.end[At()]; }
  double LogitBound() const { return 8 * kRoundoff * cap_; }
  double Logit(int t) const {
    const double raw =
        static_cast<double>(in_.scores[At() * kMaxTileTokens + static_cast<size_t>(t)]);
    return cap_ == 0 ? raw : cap_ * std::tanh(raw / cap_);
  }
  double TileMax() const {
    double max = static_cast<double>(kNone);
    for (int t = 0; t < num_tokens_; ++t) {
      if (Valid(t) && Logit(t) > max) max = Logit(t);
    }
    return max;
  }

  // Without a soft cap the decision is exact; with one it may fall either way within the logits'
  // bound.
  void CheckMax(double tile_max) {
    const double old = static_cast<double>(in_.max[At()]);
    const double max = static_cast<double>(out_.max[At()]);
    const std::string where =
        fmt::format("max of row {} (before {:.9g}, tile {:.9g})", r_, old, tile_max);
    const double over = tile_max - old - static_cast<double>(kLazyRescale);
    const double slack = LogitBound() + (cap_ == 0 ? 0 : 2 * kRoundoff * std::fabs(old));
    const bool near_threshold = std::fabs(over) <= slack;
    const bool moves = std::isinf(old)  ? tile_max > old
                       : near_threshold ? max != old
                                        : MovesExactly(tile_max, old);
    check_.ExpectNear(max, moves ? tile_max : old, LogitBound(), where);
    double rescale = 1;
    if (moves) rescale = std::isinf(old) ? 0 : std::exp(old - max);
    check_.ExpectNear(static_cast<double>(out_.rescale[At()]), rescale,
                      rescale * (std::fabs(old - max) + 6) * kRoundoff + 0x1p-126,
                      fmt::format("rescale of row {}", r_));
  }
  // In float, as the rule is computed.
  static bool MovesExactly(double tile_max, double old) {
    return static_cast<float>(tile_max) > static_cast<float>(old) + kLazyRescale;
  }

  RowCheck& check_;
  const State &in_, &out_;
  int r_, num_tokens_;
  double cap_;
};

}  // namespace

void CheckSoftmax(RowCheck& check) {
  SoftmaxBench bench(check.row());
  for (int num_tokens : kTokens) {
    for (int num_rows : kRows) {
      for (int round = 0; round < kRounds; ++round) {
        const float softcap = kSoftcaps[static_cast<size_t>(round) % kSoftcaps.size()];
        if (!check.Begin(
                fmt::format("tokens {} rows {} softcap {}", num_tokens, num_rows, softcap)))
          continue;
        Rng rng(check.case_seed());
        const State in = MakeState(num_rows, num_tokens, rng);
        const size_t slack = static_cast<size_t>(rng.Below(2) * rng.Below(16));
        const State out = bench.Run(in, 0, num_rows, num_tokens, softcap, slack);
        if (!bench.GuardsIntact(check)) return;
        for (int r = 0; r < num_rows && !check.failed(); ++r)
          RowOracle(check, in, out, r, num_tokens, softcap).Check();
        for (int r = 0; r < num_rows && !check.failed(); ++r) {
          const State alone = bench.Run(in, r, 1, num_tokens, softcap, slack);
          const std::string where = fmt::format("row {} alone", r);
          const size_t at = static_cast<size_t>(r);
          check.ExpectBytes(alone.scores.data(), &out.scores[at * kMaxTileTokens],
                            kMaxTileTokens * sizeof(float), where);
          check.ExpectBytes(alone.sum.data(), &out.sum[at], sizeof(float), where);
          check.ExpectBytes(alone.max.data(), &out.max[at], sizeof(float), where);
        }
      }
    }
  }
}

}  // namespace turboquant::check
