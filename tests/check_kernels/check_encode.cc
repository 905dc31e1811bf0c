// encode against codec's EncodeTile, bit for bit: lines, scales, zero points and the count of end
// codes.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "check.h"
#include "codec/scale_fit.h"

namespace turboquant::check {
namespace {

constexpr std::array kHeadDims = {64, 80, 96, 112, 128, 192, 256, 16, 512};
constexpr std::array kTokens = {16, 32, 64, 128, 256};
constexpr std::array kGroupSizes = {16, 32, 64, 128};
constexpr size_t kMaxValues = size_t{256} * kMaxHeadDim;
constexpr int kRounds = 4;

enum class ValueKind { kPlain, kTies, kTiny, kHuge, kWild, kNoneFinite, kAnyBits };
constexpr std::array kValueKinds = {ValueKind::kPlain,  ValueKind::kTies, ValueKind::kTiny,
                                    ValueKind::kHuge,   ValueKind::kWild, ValueKind::kNoneFinite,
                                    ValueKind::kAnyBits};

std::vector<KvSideSpec> Specs(KvCacheDtype dtype, int head_dim) {
  using G = ScaleGranularity;
  std::vector<KvSideSpec> specs;
  const bool scaled = CodeBits(dtype) <= 8;
  if (IsNarrow(dtype)) return {{.dtype = dtype, .granularity = G::kPerTokenHeadU8}};
  if (dtype == KvCacheDtype::kInt8) {
    specs.push_back({.dtype = dtype, .granularity = G::kPerTokenHeadU8});
  }
  const bool fp8 = dtype == KvCacheDtype::kFp8E4m3 || dtype == KvCacheDtype::kFp8E5m2;
  if (!scaled || fp8) specs.push_back({.dtype = dtype, .granularity = G::kNone});
  if (!scaled) return specs;
  if (dtype != KvCacheDtype::kInt4Asym) {
    for (G g : {G::kPerTensor, G::kPerHead, G::kPerChannel, G::kPerBlock})
      specs.push_back({.dtype = dtype, .granularity = g});
  }
  specs.push_back({.dtype = dtype, .granularity = G::kPerTokenHead});
  for (int group : kGroupSizes) {
    if (head_dim % group == 0)
      specs.push_back({.dtype = dtype, .granularity = G::kPerGroup, .group_size = group});
  }
  return specs;
}

// kTies: multiples of 1/2, and for FP8 of 1/16, so that rounding meets halves. kWild: NaN and
// infinities among the rest. kAnyBits: every bit pattern.
float Value(ValueKind kind, DataKind base, int channel, Rng& rng) {
  const double v = Draw(base, channel, rng);
  switch (kind) {
    case ValueKind::kPlain:
      return static_cast<float>(v * 4);
    case ValueKind::kTies:
      return static_cast<float>(std::rint(v * 256) / (rng.Below(2) == 0 ? 2 : 16));
    case ValueKind::kTiny:
      return static_cast<float>(v * 1e-7);  // scales become subnormal or 0
    case ValueKind::kHuge:
      return static_cast<float>(v * 3e38);  // scales are clamped to 65504
    case ValueKind::kWild: {
      const int odd = rng.Below(24);
      if (odd == 0) return std::numeric_limits<float>::quiet_NaN();
      if (odd == 1) return std::numeric_limits<float>::infinity();
      if (odd == 2) return -std::numeric_limits<float>::infinity();
      if (odd == 3) return -0.0f;
      return static_cast<float>(v);
    }
    case ValueKind::kNoneFinite: {
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
      return std::array{kNan, kInfinity, -kInfinity}[static_cast<size_t>(rng.Below(3))];
    }
    case ValueKind::kAnyBits:
      return std::bit_cast<float>(static_cast<uint32_t>(rng.Next()));
  }
  return 0;
}

struct Output {
  std::vector<uint8_t> lines;
  std::vector<uint16_t> scales, zero_points;
  int64_t end_codes = 0;
};

class EncodeBench {
 public:
  EncodeBench(RowCheck& check)
      : check_(check),
        x_(kMaxValues * 4 + 64),
        lines_(kMaxValues * 4),
        scales_(kMaxValues / 16 * 2),
        zero_points_(kMaxValues / 16 * 2),
        channels_(kMaxHeadDim * 4) {}

  void Run(const KvSideSpec& spec, const TileShape& shape, ValueKind kind, DataKind base) {
    Rng rng(check_.case_seed());
    MakeInput(spec, shape, kind, base, rng);
    const Output expected = Encode(spec, shape, EncodeTile);
    const Output actual = Encode(spec, shape, check_.row().encode);
    for (const auto* buffer : {&lines_, &scales_, &zero_points_}) {
      if (!check_.ExpectGuards(*buffer, "lines, scales or zero points")) return;
    }
    check_.ExpectBytes(actual.scales.data(), expected.scales.data(), expected.scales.size() * 2,
                       "scales");
    check_.ExpectBytes(actual.zero_points.data(), expected.zero_points.data(),
                       expected.zero_points.size() * 2, "zero points");
    CompareLines(spec, shape, actual, expected);
    check_.ExpectNear(static_cast<double>(actual.end_codes),
                      static_cast<double>(expected.end_codes), 0, "end codes");
  }

 private:
  void MakeInput(const KvSideSpec& spec, const TileShape& shape, ValueKind kind, DataKind base,
                 Rng& rng) {
    const size_t count =
        static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.head_dim);
    float* x = x_.PlaceArray<float>(count, static_cast<size_t>(rng.Below(2) * rng.Below(16)));
    for (size_t i = 0; i < count; ++i)
      x[i] = Value(kind, base, static_cast<int>(i) % shape.head_dim, rng);
    float* channels = channels_.PlaceArray<float>(static_cast<size_t>(shape.head_dim));
    for (int c = 0; c < shape.head_dim; ++c) {
      channels[c] = std::array{1.0f, 0.0f, static_cast<float>(rng.Uniform()),
                               0x1p-5f}[static_cast<size_t>(rng.Below(4))];
    }
    x_begin_ = x;
    static_scales_ = {
        .head = static_cast<float>(0.001 + rng.Uniform() / 8),
        .channels = spec.granularity == ScaleGranularity::kPerChannel ? channels : nullptr};
  }

  Output Encode(const KvSideSpec& spec, const TileShape& shape, EncodeFn encode) {
    const size_t line_bytes = LineBytes(spec.dtype, shape);
    const size_t num_scales =
        static_cast<size_t>(spec.ScalesPerToken(shape.head_dim) * shape.num_tokens);
    const size_t num_zero_points = spec.HasZeroPoint() ? num_scales : 0;
    uint8_t* lines = lines_.Place(line_bytes, 0);
    auto* scales = scales_.PlaceArray<uint16_t>(num_scales);
    auto* zero_points = zero_points_.PlaceArray<uint16_t>(num_zero_points);
    if (spec.HasByteScales()) {  // given
      std::vector<uint8_t> codes(num_scales);
      int16_t bias;
      FitScales(
          {spec.dtype, x_begin_, shape.num_tokens, shape.head_dim, codes.data(), &bias, scales});
    }
    Output out{.lines = {}, .scales = {}, .zero_points = {}, .end_codes = 17};
    encode({.shape = shape,
            .spec = spec,
            .x = x_begin_,
            .static_scales = static_scales_,
            .lines = lines,
            .scales = num_scales == 0 ? nullptr : scales,
            .zero_points = num_zero_points == 0 ? nullptr : zero_points,
            .end_codes = &out.end_codes});
    out.lines.assign(lines, lines + line_bytes);
    out.scales.assign(scales, scales + num_scales);
    out.zero_points.assign(zero_points, zero_points + num_zero_points);
    return out;
  }

  void CompareLines(const KvSideSpec& spec, const TileShape& shape, const Output& actual,
                    const Output& expected) {
    if (actual.lines == expected.lines) return;
    for (int t = 0; t < shape.num_tokens; ++t) {
      for (int c = 0; c < shape.head_dim; ++c) {
        const CodeAddress at = AddressOf(spec.dtype, shape, t, c);
        const size_t bytes = static_cast<size_t>(std::max(CodeBits(spec.dtype) / 8, 1));
        const auto x = static_cast<double>(x_begin_[static_cast<size_t>(t * shape.head_dim + c)]);
        if (!check_.ExpectBytes(
                &actual.lines[at.byte], &expected.lines[at.byte], bytes,
                fmt::format("token {} channel {} x {:.9g} (line byte {})", t, c, x, at.byte))) {
          return;
        }
      }
    }
  }

  RowCheck& check_;
  GuardedBuffer x_, lines_, scales_, zero_points_, channels_;
  const float* x_begin_ = nullptr;
  HeadScales static_scales_;
};

}  // namespace

void CheckEncode(RowCheck& check) {
  EncodeBench bench(check);
  size_t kind = 0;
  for (int head_dim : kHeadDims) {
    for (int num_tokens : kTokens) {
      for (const KvSideSpec& spec : Specs(check.row().dtype, head_dim)) {
        for (KvSide side : {KvSide::kKey, KvSide::kValue}) {
          if (!HasWholeUnits(check.row().dtype, {side, num_tokens, head_dim})) continue;
          for (int round = 0; round < kRounds; ++round) {
            ++kind;
            const auto value_kind = kValueKinds[kind % kValueKinds.size()];
            const auto base = kAllDataKinds[kind / kValueKinds.size() % kAllDataKinds.size()];
            const bool key = side == KvSide::kKey;
            if (!check.Begin(fmt::format(
                    "{} head_dim {} tokens {} granularity {} group_size {} values {} of {}",
                    key ? "K" : "V", head_dim, num_tokens, turboquant::Name(spec.granularity),
                    spec.group_size, static_cast<int>(value_kind), Name(base)))) {
              continue;
            }
            bench.Run(spec, {side, num_tokens, head_dim}, value_kind, base);
          }
        }
      }
    }
  }
}

}  // namespace turboquant::check
