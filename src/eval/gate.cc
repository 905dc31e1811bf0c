#include "eval/gate.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "codec/kv_cache_spec.h"

namespace turboquant {
namespace {

struct MeasureName {
  std::string_view name;
  GateMeasure measure;
  bool at_least;  // the limit is a lower one
  std::string_view sentence;
};
constexpr std::array kMeasures = {
    MeasureName{"kl", GateMeasure::kKlMean, false, "mean KL"},
    MeasureName{"kl_p99", GateMeasure::kKlP99, false, "KL at 99 % of the tokens"},
    MeasureName{"kl_p999", GateMeasure::kKlP999, false, "KL at 99.9 % of the tokens"},
    MeasureName{"top1", GateMeasure::kTop1, true, "same top token in percent"},
    MeasureName{"ppl", GateMeasure::kPerplexity, false, "rise of perplexity in percent"},
    MeasureName{"task", GateMeasure::kTask, false, "loss of task accuracy in points"},
};

struct Preset {
  std::string_view name, text;
};
// docs/how-to/quality-gate.md says where the figures come from.
constexpr std::array kPresets = {
    Preset{"strict", "kl<=0.0005,top1>=99,ppl<=0.2%"},
    Preset{"default", "kl<=0.005,top1>=98.5,ppl<=0.5%"},
    Preset{"low-bit", "kl<=0.03,top1>=96,ppl<=2%"},
};

const MeasureName& NameOf(GateMeasure measure) {
  const auto* const it = std::ranges::find(kMeasures, measure, &MeasureName::measure);
  CHECK(it != kMeasures.end());
  return *it;
}

double Measured(GateMeasure measure, const GateFigures& figures) {
  if (measure == GateMeasure::kTask) {
    CHECK(figures.tasks != nullptr);
    // From the counts: a limit of 7 points is not missed by the rounding of 0.07.
    const TaskScore &reference = figures.tasks->reference, &candidate = figures.tasks->candidate;
    return 100.0 * (reference.num_right - candidate.num_right) / reference.num_items;
  }
  CHECK(figures.text != nullptr);
  const DivergenceSummary& d = *figures.text;
  switch (measure) {
    case GateMeasure::kKlMean:
      return d.kl_mean;
    case GateMeasure::kKlP99:
      return d.kl_p99;
    case GateMeasure::kKlP999:
      return d.kl_p999;
    case GateMeasure::kTop1:
      return 100 * d.top1_agreement;
    case GateMeasure::kPerplexity:
      return 100 * (d.perplexity / d.perplexity_reference - 1);
    case GateMeasure::kTask:
      break;
  }
  CHECK(false);
  return 0;
}

// " +- X" where the measure has a standard error.
std::string ErrorOf(GateMeasure measure, const GateFigures& figures) {
  if (measure == GateMeasure::kKlMean) {
    return fmt::format(" +- {:.1g}", figures.text->kl_standard_error);
  }
  if (measure == GateMeasure::kTask) {
    return fmt::format(" +- {:.2g}", 100 * figures.tasks->loss_standard_error);
  }
  return "";
}

Result<GateLimit> ParseLimit(std::string_view text) {
  const size_t op = text.find_first_of("<>");
  const std::string_view name = text.substr(0, op);
  const auto* const measure = std::ranges::find(kMeasures, name, &MeasureName::name);
  if (measure == kMeasures.end() || op == std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument,
                "gate '{}': want kl<=X, kl_p99<=X, kl_p999<=X, top1>=PERCENT, ppl<=PERCENT or "
                "task<=POINTS, joined by commas, or one of strict, default, low-bit",
                text);
  }
  if (text.substr(op, 2) != (measure->at_least ? ">=" : "<=")) {
    return Fail(ErrorCode::kInvalidArgument, "gate '{}': {} takes {}", text, name,
                measure->at_least ? ">=" : "<=");
  }
  std::string_view number = text.substr(op + 2);
  const bool percent = measure->measure == GateMeasure::kTop1 ||
                       measure->measure == GateMeasure::kPerplexity ||
                       measure->measure == GateMeasure::kTask;
  if (percent && number.ends_with('%')) number.remove_suffix(1);
  double limit = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), limit);
  if (error != std::errc{} || end != number.data() + number.size() || !std::isfinite(limit)) {
    return Fail(ErrorCode::kInvalidArgument, "gate '{}': '{}' is no number", text, number);
  }
  return GateLimit{.measure = measure->measure, .limit = limit};
}

using Formats = std::pair<const char*, const char*>;  // K/V and granularity as the flags spell them

// Everything that has a place in the ladder, in no order.
constexpr std::array kLadder = {
    Formats{"int2", ""},      Formats{"int3", ""}, Formats{"int4", ""}, Formats{"int5", ""},
    Formats{"int6/int4", ""}, Formats{"int6", ""}, Formats{"int8", ""}, Formats{"f16", ""},
};

// Bits of closed blocks of 64 tokens; empty where the head size does not take the format.
// Copies of recent tokens are priced at this context.
constexpr int kRecentTokens = 512, kPricedContext = 8192;

Result<double> BitsOf(const EvaluationCandidate& candidate, int head_dim) {
  TQ_ASSIGN_OR_RETURN(const KvSidePair sides,
                      ParseKvFormat(candidate.kv_cache_dtype, candidate.kv_scale_granularity,
                                    candidate.kv_transform, nullptr));
  const KvCacheSpec spec = {
      .k = sides.k, .v = sides.v, .num_kv_heads = 1, .head_dim = head_dim, .block_size = 64};
  TQ_RETURN_IF_ERROR(spec.Validate());
  if (candidate.kv_recent_tokens == 0) return spec.BitsPerValue();
  const auto recent = RecentSpec(spec);
  if (!recent) return Fail(ErrorCode::kUnsupported, "no recent copies of this format");
  return spec.BitsPerValue() + recent->BitsPerValue() * candidate.kv_recent_tokens / kPricedContext;
}

bool SameFormat(const EvaluationCandidate& a, const EvaluationCandidate& b) {
  const auto left =
      ParseKvFormat(a.kv_cache_dtype, a.kv_scale_granularity, a.kv_transform, nullptr);
  const auto right =
      ParseKvFormat(b.kv_cache_dtype, b.kv_scale_granularity, b.kv_transform, nullptr);
  return left && right && left->k == right->k && left->v == right->v &&
         a.kv_recent_tokens == b.kv_recent_tokens && a.softmax_temperature == b.softmax_temperature;
}

}  // namespace

Result<Gate> ParseGate(std::string_view text) {
  const auto* const preset = std::ranges::find(kPresets, text, &Preset::name);
  if (preset != kPresets.end()) text = preset->text;
  Gate gate;
  for (bool more = true; more;) {
    const size_t comma = text.find(',');
    TQ_ASSIGN_OR_RETURN(const GateLimit limit, ParseLimit(text.substr(0, comma)));
    gate.limits.push_back(limit);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return gate;
}

bool Gate::NeedsTasks() const {
  return std::ranges::any_of(
      limits, [](const GateLimit& limit) { return limit.measure == GateMeasure::kTask; });
}

bool Gate::NeedsText() const {
  return std::ranges::any_of(
      limits, [](const GateLimit& limit) { return limit.measure != GateMeasure::kTask; });
}

std::vector<std::string> GateViolations(const Gate& gate, const GateFigures& measured) {
  std::vector<std::string> violations;
  for (const GateLimit& limit : gate.limits) {
    const MeasureName& name = NameOf(limit.measure);
    const double value = Measured(limit.measure, measured);
    if (name.at_least ? value >= limit.limit : value <= limit.limit) continue;
    violations.push_back(fmt::format("{} {:.4g}{} is {} {:.4g}", name.sentence, value,
                                     ErrorOf(limit.measure, measured),
                                     name.at_least ? "below" : "above", limit.limit));
  }
  return violations;
}

std::vector<EvaluationCandidate> GateAlternatives(const EvaluationCandidate& refused,
                                                  double bits_per_value, int head_dim) {
  std::vector<EvaluationCandidate> tried = {{refused.kv_cache_dtype, "", ""},
                                            {refused.kv_cache_dtype, "", "", kRecentTokens}};
  for (const auto& [dtype, granularity] : kLadder) tried.push_back({dtype, granularity, ""});
  std::vector<std::pair<double, EvaluationCandidate>> priced;
  for (const EvaluationCandidate& candidate : tried) {
    const Result<double> bits = BitsOf(candidate, head_dim);
    if (!bits || *bits < bits_per_value - 1e-6 || SameFormat(candidate, refused)) continue;
    if (std::ranges::any_of(priced, [&](const auto& p) { return SameFormat(p.second, candidate); }))
      continue;
    const auto at =
        std::ranges::upper_bound(priced, *bits, {}, &std::pair<double, EvaluationCandidate>::first);
    priced.emplace(at, *bits, candidate);
  }
  std::vector<EvaluationCandidate> result;
  for (auto& [bits, candidate] : priced) result.push_back(std::move(candidate));
  return result;
}

std::string ToFlags(const EvaluationCandidate& candidate) {
  std::string flags = "--kv-cache-dtype " + candidate.kv_cache_dtype;
  if (!candidate.kv_scale_granularity.empty()) {
    flags += " --kv-scale-granularity " + candidate.kv_scale_granularity;
  }
  if (!candidate.kv_transform.empty()) flags += " --kv-transform " + candidate.kv_transform;
  if (candidate.kv_recent_tokens > 0) {
    flags += fmt::format(" --kv-recent-tokens {}", candidate.kv_recent_tokens);
  }
  return flags;
}

}  // namespace turboquant
