#include "eval/recipes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/half.h"
#include "codec/rotation.h"
#include "codec/stored_run.h"

namespace turboquant {
namespace {

constexpr size_t kGroup = 32;  // channels or tokens

float ThroughHalf(float x) { return HalfToFloat(FloatToHalf(x)); }

void RoundQ80(std::span<float> group) {
  float amax = 0;
  for (const float x : group) amax = std::max(amax, std::fabs(x));
  const float step = amax / 127;
  const float inverse = step > 0 ? 1 / step : 0;
  for (float& x : group) x = std::round(x * inverse) * ThroughHalf(step);
}

void RoundQ40(std::span<float> group) {
  float extreme = 0;  // with its sign: it becomes code -8
  for (const float x : group) {
    if (std::fabs(x) > std::fabs(extreme)) extreme = x;
  }
  const float step = extreme / -8;
  const float inverse = step != 0 ? 1 / step : 0;
  for (float& x : group) {
    x = (std::min(15.0f, std::trunc(x * inverse + 8.5f)) - 8) * ThroughHalf(step);
  }
}

// Levels of least squared error for a normal distribution of variance 1 (Lloyd's iteration).
std::vector<float> NormalLevels(int bits) {
  const auto density = [](double x) {
    return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
  };
  const auto below = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const size_t n = size_t{1} << bits;
  std::vector<double> levels(n);
  for (size_t i = 0; i < n; ++i) {
    levels[i] = (static_cast<double>(i) + 0.5) / static_cast<double>(n) * 6 - 3;
  }
  for (int iteration = 0; iteration < 2000; ++iteration) {
    const std::vector<double> old = levels;
    for (size_t i = 0; i < n; ++i) {
      const double from = i == 0 ? -kInfinity : (old[i - 1] + old[i]) / 2;
      const double to = i + 1 == n ? kInfinity : (old[i] + old[i + 1]) / 2;
      levels[i] = (density(from) - density(to)) / (below(to) - below(from));
    }
  }
  return {levels.begin(), levels.end()};
}

// One rotated head: norm and levels.
void RoundTurboQuant(std::span<float> head, std::span<const float> levels) {
  float square = 0;
  for (const float x : head) square += x * x;
  const float rms = std::sqrt(square / static_cast<float>(head.size()));
  const float inverse = rms > 0 ? 1 / rms : 0;
  const float stored = ThroughHalf(std::sqrt(square)) / std::sqrt(static_cast<float>(head.size()));
  for (float& x : head) {
    const float y = x * inverse;
    const auto nearest =
        std::ranges::min_element(levels, {}, [y](float level) { return std::fabs(level - y); });
    x = *nearest * stored;
  }
}

// kGroup values, `stride` floats apart.
void RoundKivi(float* group, size_t stride, int bits) {
  float low = group[0], high = group[0];
  for (size_t i = 1; i < kGroup; ++i) {
    low = std::min(low, group[i * stride]);
    high = std::max(high, group[i * stride]);
  }
  const auto top = static_cast<float>((1 << bits) - 1);
  const float step = ThroughHalf((high - low) / top);
  const float base = ThroughHalf(low);
  for (size_t i = 0; i < kGroup; ++i) {
    float& x = group[i * stride];
    const float code = step > 0 ? std::clamp(std::round((x - base) / step), 0.0f, top) : 0.0f;
    x = base + step * code;
  }
}

KvCacheSpec OurSpec(std::string_view format, int head_dim, int block_size) {
  const auto sides = ParseKvFormat(std::string(format), "", "", nullptr);
  CHECK(sides.has_value());
  return {.k = sides->k,
          .v = sides->v,
          .num_kv_heads = 1,
          .head_dim = head_dim,
          .block_size = block_size};
}

// A rotated block through our own codec.
void RoundOurs(std::string_view format, KvSide side, float* x, int num_tokens, int head_dim) {
  const KvCacheSpec spec = OurSpec(format, head_dim, num_tokens);
  const KvBlockLayout layout(spec);
  AlignedBuffer<uint8_t> run(layout.bytes_per_head);
  WriteRun({&spec, &layout, side, x, HeadScales{}, run.data()});
  ReadRun({&spec, &layout, side, run.data(), HeadScales{}, x});
}

enum class Rule : uint8_t { kQ80, kQ40, kQ40Delta, kTurboQuant, kKivi, kOurs };
struct Kind {
  std::string_view name;
  Rule rule;
  int bits;  // of a code
  bool rotated, at_once;
};
constexpr std::array kKinds = {Kind{"q8_0", Rule::kQ80, 8, false, false},
                               Kind{"q8_0_at_once", Rule::kQ80, 8, false, true},
                               Kind{"q4_0", Rule::kQ40, 4, false, false},
                               Kind{"q4_0_at_once", Rule::kQ40, 4, false, true},
                               Kind{"q4_0_rotated", Rule::kQ40, 4, true, false},
                               Kind{"q4_0_delta", Rule::kQ40Delta, 4, false, false},
                               Kind{"turboquant_mse4", Rule::kTurboQuant, 4, true, false},
                               Kind{"turboquant_mse3", Rule::kTurboQuant, 3, true, false},
                               Kind{"turboquant_mse2", Rule::kTurboQuant, 2, true, false},
                               Kind{"kivi4", Rule::kKivi, 4, false, false},
                               Kind{"kivi2", Rule::kKivi, 2, false, false},
                               Kind{"int8", Rule::kOurs, 8, true, false},
                               Kind{"int4", Rule::kOurs, 4, true, false}};

double BitsPerValue(const Kind& kind, int head_dim, int block_size) {
  switch (kind.rule) {
    case Rule::kQ80:
    case Rule::kQ40:
    case Rule::kQ40Delta:
      return kind.bits + 16.0 / kGroup;
    case Rule::kTurboQuant:
      return kind.bits + 16.0 / head_dim;
    case Rule::kKivi:
      return kind.bits + 32.0 / kGroup;
    case Rule::kOurs: {
      const KvBlockLayout layout(OurSpec(kind.name, head_dim, block_size));
      return 4.0 * static_cast<double>(layout.bytes_per_head) / (head_dim * block_size);
    }
  }
  return 0;
}

class Rounding : public KvRecipe {
 public:
  Rounding(const Kind& kind, int num_sink_tokens)
      : kind_(kind),
        num_sink_tokens_(kind.at_once ? 0 : num_sink_tokens),
        levels_(kind.rule == Rule::kTurboQuant ? NormalLevels(kind.bits) : std::vector<float>{}) {}

  void OnToken(KvSide side, float* row, int head_dim) const override {
    if (kind_.at_once) Round(side, row, 1, head_dim);
  }
  void OnClose(KvSide side, int block, float* x, int num_tokens, int head_dim) const override {
    if (kind_.at_once) return;
    const auto kept = static_cast<size_t>((block == 0 ? num_sink_tokens_ : 0) * head_dim);
    const std::vector<float> sinks(x, x + kept);
    Round(side, x, num_tokens, head_dim);
    std::ranges::copy(sinks, x);
  }

 private:
  void Round(KvSide side, float* x, int num_tokens, int head_dim) const {
    const auto d = static_cast<size_t>(head_dim);
    RotateArgs rotate = {.in = x,
                         .in_stride = d,
                         .out = x,
                         .out_stride = d,
                         .num_rows = num_tokens,
                         .head_dim = head_dim,
                         .inverse = false};
    if (kind_.rotated) Rotate(rotate);
    const size_t count = static_cast<size_t>(num_tokens) * d;
    if (kind_.rule == Rule::kOurs) {
      RoundOurs(kind_.name, side, x, num_tokens, head_dim);
    } else if (kind_.rule == Rule::kKivi && side == KvSide::kKey) {
      for (size_t at = 0; at < count; at += kGroup * d) {
        for (size_t c = 0; c < d; ++c) RoundKivi(x + at + c, d, kind_.bits);
      }
    } else {
      const size_t unit = kind_.rule == Rule::kTurboQuant ? d : kGroup;
      const bool delta = kind_.rule == Rule::kQ40Delta;
      for (size_t at = 0; at < count; at += unit) {
        const float* before = delta && at >= d ? x + at - d : nullptr;  // as stored
        for (size_t i = 0; before != nullptr && i < unit; ++i) x[at + i] -= before[i];
        RoundUnit({x + at, unit});
        for (size_t i = 0; before != nullptr && i < unit; ++i) x[at + i] += before[i];
      }
    }
    rotate.inverse = true;
    if (kind_.rotated) Rotate(rotate);
  }
  // Values of one token that share a scale.
  void RoundUnit(std::span<float> unit) const {
    switch (kind_.rule) {
      case Rule::kQ80:
        return RoundQ80(unit);
      case Rule::kQ40:
      case Rule::kQ40Delta:
        return RoundQ40(unit);
      case Rule::kTurboQuant:
        return RoundTurboQuant(unit, levels_);
      case Rule::kKivi:
        return RoundKivi(unit.data(), 1, kind_.bits);
      case Rule::kOurs:  // a block at a time
        break;
    }
  }

  Kind kind_;
  int num_sink_tokens_;
  std::vector<float> levels_;
};

}  // namespace

Result<Recipe> MakeRecipe(std::string_view text, int head_dim, int block_size,
                          int num_sink_tokens) {
  const std::string_view name = text.substr(std::min(text.size(), kRecipePrefix.size()));
  const auto* const kind = std::ranges::find(kKinds, name, &Kind::name);
  if (kind == kKinds.end()) {
    std::string known;
    for (const Kind& each : kKinds) known += fmt::format(" {}", each.name);
    return Fail(ErrorCode::kInvalidArgument,
                "'{}' is no recipe; known:{} keepN keepN_newest keepN_int4", text, known);
  }
  if (static_cast<size_t>(head_dim) % kGroup != 0 ||
      static_cast<size_t>(block_size) % kGroup != 0) {
    return Fail(ErrorCode::kUnsupported,
                "'{}': heads of {} channels and blocks of {} tokens, the recipes want multiples of "
                "{}",
                text, head_dim, block_size, kGroup);
  }
  return Recipe{.name = std::string(text),
                .bits_per_value = BitsPerValue(*kind, head_dim, block_size),
                .at_once = kind->at_once,
                .rounding = std::make_unique<Rounding>(*kind, num_sink_tokens)};
}

}  // namespace turboquant
