#include "eval/tuning.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "calibration/kv_plan.h"
#include "codec/kv_cache_spec.h"

namespace turboquant {
namespace {

constexpr size_t kLanesAtOnce = 8;  // candidates that share a run of the reference
constexpr int kFolkEnds = 2;        // layers at each end that the first folk rule keeps
constexpr size_t kUniformTried = 3;
constexpr double kBudgetStep = 0.25;  // bits, of the search for a KL

// The KL that step 3 expects of a plan.
double Expected(const Tuning& tuning, const Allocation& allocation) {
  double sum = 0;
  for (size_t i = 0; i < allocation.k.size(); ++i) {
    sum += tuning.sensitivities.k[i] * tuning.weights.k[allocation.k[i]] +
           tuning.sensitivities.v[i] * tuning.weights.v[allocation.v[i]];
  }
  return sum;
}

// One run of everything that a tuning measures.
class Tuner {
 public:
  Tuner(const std::shared_ptr<const Model>& model, const std::vector<std::vector<int32_t>>& windows,
        const TuningOptions& options)
      : model_(model),
        windows_(windows),
        options_(options),
        num_layers_(model->config().num_layers),
        total_(TuningTokens(num_layers_, options.formats.size(),
                            static_cast<int64_t>(windows.size()) * options.evaluation.context)) {}

  Result<Tuning> Run();

 private:
  using Layers = std::vector<std::string>;
  Result<std::vector<EvaluationResult>> Measure(const std::vector<EvaluationCandidate>& candidates);
  Result<SideCosts> Sensitivities();
  Result<SideCosts> Weights();
  Result<double> Bits(const Layers& layers) const;
  Status FindBits();
  std::vector<double> Budgets(const Tuning& tuning) const;
  Result<Layers> BySensitivity(const Tuning& tuning) const;
  Result<std::vector<MeasuredPlan>> UniformPlans(const Tuning& tuning) const;
  Result<std::optional<MeasuredPlan>> FolkPlan(const Tuning& tuning, const std::string& name,
                                               const std::function<bool(int)>& kept) const;
  Result<std::vector<MeasuredPlan>> Plans(const Tuning& tuning) const;
  Result<std::vector<MeasuredPlan>> MeasurePlans(const Tuning& tuning);
  Layers Uniform(const std::string& format) const {
    return Layers(static_cast<size_t>(num_layers_), format);
  }

  const std::shared_ptr<const Model>& model_;
  const std::vector<std::vector<int32_t>>& windows_;
  const TuningOptions& options_;
  int num_layers_;
  int64_t total_, done_ = 0;
  std::vector<double> bits_;  // per value, of each format
  size_t least_v_ = 0;        // index of options.least_v
  double least_bits_ = 0;     // of the cheapest allocation
  double budget_ = 0;         // bits per value of the plans that are looked for
};

// In batches, so that memory stays bounded.
Result<std::vector<EvaluationResult>> Tuner::Measure(
    const std::vector<EvaluationCandidate>& candidates) {
  std::vector<EvaluationResult> results;
  for (size_t from = 0; from < candidates.size(); from += kLanesAtOnce) {
    EvaluationOptions options = options_.evaluation;
    const auto end = std::min(from + kLanesAtOnce, candidates.size());
    options.candidates.assign(candidates.begin() + static_cast<std::ptrdiff_t>(from),
                              candidates.begin() + static_cast<std::ptrdiff_t>(end));
    int64_t batch = 0;
    options.progress = [&](int64_t done, int64_t /*total*/) {
      batch = done;
      if (options_.evaluation.progress) {
        options_.evaluation.progress(std::min(done_ + done, total_), total_);
      }
    };
    TQ_ASSIGN_OR_RETURN(auto measured, Evaluate(model_, windows_, {}, options));
    done_ += batch;
    for (EvaluationResult& result : measured) results.push_back(std::move(result));
  }
  return results;
}

EvaluationCandidate OfLayers(const std::vector<std::string>& layers) {
  EvaluationCandidate candidate;
  candidate.kv_cache_dtype = "f16";
  candidate.kv_cache_dtype_layers = LayerOverrides(layers);
  return candidate;
}

Result<SideCosts> Tuner::Sensitivities() {
  std::vector<EvaluationCandidate> candidates;
  for (int layer = 0; layer < num_layers_; ++layer) {
    for (const std::string& format : {options_.probe + "/f16", "f16/" + options_.probe}) {
      EvaluationCandidate& candidate = candidates.emplace_back();
      candidate.kv_cache_dtype = "f16";
      candidate.kv_cache_dtype_layers = fmt::format("{}:{}", layer, format);
    }
  }
  TQ_ASSIGN_OR_RETURN(const auto results, Measure(candidates));
  SideCosts costs;
  for (size_t i = 0; i < results.size(); i += 2) {
    costs.k.push_back(results[i].divergence.kl_mean);
    costs.v.push_back(results[i + 1].divergence.kl_mean);
  }
  return costs;
}

Result<SideCosts> Tuner::Weights() {
  std::vector<EvaluationCandidate> candidates;
  for (const std::string& format : options_.formats) {
    candidates.push_back({format + "/f16", ""});
    candidates.push_back({"f16/" + format, ""});
  }
  TQ_ASSIGN_OR_RETURN(const auto results, Measure(candidates));
  const auto probe = static_cast<size_t>(std::ranges::find(options_.formats, options_.probe) -
                                         options_.formats.begin());
  const double k_probe = results[2 * probe].divergence.kl_mean;
  const double v_probe = results[2 * probe + 1].divergence.kl_mean;
  SideCosts weights;
  for (size_t i = 0; i < results.size(); i += 2) {
    weights.k.push_back(results[i].divergence.kl_mean / k_probe);
    weights.v.push_back(results[i + 1].divergence.kl_mean / v_probe);
  }
  return weights;
}

Result<double> Tuner::Bits(const Layers& layers) const {
  CachePlanOptions cache = options_.evaluation.cache;
  cache.kv_cache_dtype = "f16";
  cache.kv_cache_dtype_layers = LayerOverrides(layers);
  cache.max_num_seqs = 1;
  cache.max_model_len = options_.evaluation.context;
  TQ_ASSIGN_OR_RETURN(const CachePlan plan,
                      PlanWithoutLimit(CacheModelOf(model_->config()), cache));
  return plan.bits_per_value;
}

// Refuses formats and budgets before anything runs.
Status Tuner::FindBits() {
  for (const std::string& format : options_.formats) {
    TQ_ASSIGN_OR_RETURN(const double bits, Bits(Uniform(format)));
    if (!bits_.empty() && bits <= bits_.back()) {
      return Fail(
          ErrorCode::kInvalidArgument,
          "tune: format {} has {:.3f} bits, no more than the one before: give them in order",
          format, bits);
    }
    bits_.push_back(bits);
  }
  if (!options_.least_v.empty()) {
    const auto at = std::ranges::find(options_.formats, options_.least_v);
    if (at == options_.formats.end()) {
      return Fail(ErrorCode::kInvalidArgument, "tune: the least format of V, {}, is none of them",
                  options_.least_v);
    }
    least_v_ = static_cast<size_t>(at - options_.formats.begin());
  }
  const std::string least = options_.formats.front() + "/" + options_.formats[least_v_];
  TQ_ASSIGN_OR_RETURN(least_bits_, Bits(Uniform(least)));
  if (options_.budget_bits > 0 && least_bits_ > options_.budget_bits) {
    return Fail(ErrorCode::kInvalidArgument, "a budget of {} bits per value: {} alone has {:.3f}",
                options_.budget_bits, least, least_bits_);
  }
  return {};
}

// Sides have a little more or less than half of both: what an allocation overshoots is taken off
// the budget of the next one. The cheapest allocation alone fits.
Result<Tuner::Layers> Tuner::BySensitivity(const Tuning& tuning) const {
  const AllocationInput input = {tuning.sensitivities, tuning.weights, bits_, least_v_};
  double budget = budget_;
  for (;;) {
    const Allocation allocation = Allocate(input, budget);
    Layers layers;
    for (size_t i = 0; i < allocation.k.size(); ++i) {
      layers.push_back(options_.formats[allocation.k[i]] + "/" + options_.formats[allocation.v[i]]);
    }
    TQ_ASSIGN_OR_RETURN(const double found, Bits(layers));
    if (found <= budget_) return layers;
    budget -= found - budget_ + 1e-6;
  }
}

// Those within the budget that are expected to cost least.
Result<std::vector<MeasuredPlan>> Tuner::UniformPlans(const Tuning& tuning) const {
  const auto layers = static_cast<size_t>(num_layers_);
  const std::vector<std::string>& formats = options_.formats;
  std::vector<std::pair<double, std::string>> fitting;
  for (size_t k = 0; k < formats.size(); ++k) {
    for (size_t v = 0; v < formats.size(); ++v) {
      const std::string format = formats[k] + "/" + formats[v];
      TQ_ASSIGN_OR_RETURN(const double bits, Bits(Uniform(format)));
      if (bits > budget_) continue;
      fitting.emplace_back(Expected(tuning, {std::vector(layers, k), std::vector(layers, v)}),
                           format);
    }
  }
  std::ranges::sort(fitting);
  if (fitting.size() > kUniformTried) fitting.resize(kUniformTried);
  std::vector<MeasuredPlan> plans;
  for (const auto& [expected, format] : fitting) {
    plans.push_back({"uniform " + format, Uniform(format), {}});
  }
  return plans;
}

// The layers that a rule keeps in the best format, the others in the pair of formats that is
// expected to cost least of those that fit.
Result<std::optional<MeasuredPlan>> Tuner::FolkPlan(const Tuning& tuning, const std::string& name,
                                                    const std::function<bool(int)>& kept) const {
  const std::vector<std::string>& formats = options_.formats;
  const auto num_layers = static_cast<size_t>(num_layers_);
  std::optional<MeasuredPlan> plan;
  double least = 0;
  for (size_t k = 0; k < formats.size(); ++k) {
    for (size_t v = 0; v < formats.size(); ++v) {
      const std::string rest = formats[k] + "/" + formats[v];
      Allocation allocation = {std::vector(num_layers, k), std::vector(num_layers, v)};
      Layers layers = Uniform(rest);
      for (size_t layer = 0; layer < num_layers; ++layer) {
        if (!kept(static_cast<int>(layer))) continue;
        allocation.k[layer] = allocation.v[layer] = formats.size() - 1;
        layers[layer] = formats.back() + "/" + formats.back();
      }
      TQ_ASSIGN_OR_RETURN(const double bits, Bits(layers));
      const double expected = Expected(tuning, allocation);
      if (bits > budget_ || (plan && expected >= least)) continue;
      least = expected;
      plan = {fmt::format("{} {}, rest {}", name, formats.back(), rest), std::move(layers), {}};
    }
  }
  return plan;
}

Result<std::vector<MeasuredPlan>> Tuner::Plans(const Tuning& tuning) const {
  TQ_ASSIGN_OR_RETURN(std::vector<MeasuredPlan> plans, UniformPlans(tuning));
  TQ_ASSIGN_OR_RETURN(Layers allocated, BySensitivity(tuning));
  plans.push_back({"by sensitivity", std::move(allocated), {}});
  TQ_ASSIGN_OR_RETURN(auto ends, FolkPlan(tuning, "first and last 2 layers", [this](int layer) {
                        return layer < kFolkEnds || layer >= num_layers_ - kFolkEnds;
                      }));
  TQ_ASSIGN_OR_RETURN(auto third, FolkPlan(tuning, "first third",
                                           [this](int layer) { return 3 * layer < num_layers_; }));
  for (auto& folk : {&ends, &third}) {
    if (*folk) plans.push_back(std::move(**folk));
  }
  return plans;
}

Status CheckOptions(const TuningOptions& options) {
  if (options.formats.size() < 2) {
    return Fail(ErrorCode::kInvalidArgument, "tune: {} formats: at least two to choose from",
                options.formats.size());
  }
  if (std::ranges::find(options.formats, options.probe) == options.formats.end()) {
    return Fail(ErrorCode::kInvalidArgument, "tune: the probe format {} is none of the formats",
                options.probe);
  }
  if (!(options.budget_bits > 0) == !(options.max_kl > 0)) {
    return Fail(ErrorCode::kInvalidArgument,
                "tune: give either a budget of bits or a largest KL, above 0");
  }
  return {};
}

// The budget that was asked for; or those from where the largest KL may be kept on, upwards.
std::vector<double> Tuner::Budgets(const Tuning& tuning) const {
  if (options_.budget_bits > 0) return {options_.budget_bits};
  std::vector<double> budgets;
  for (double budget = least_bits_; budget < bits_.back() + kBudgetStep; budget += kBudgetStep) {
    const Allocation allocation =
        Allocate({tuning.sensitivities, tuning.weights, bits_, least_v_}, budget);
    if (Expected(tuning, allocation) <= options_.max_kl) budgets.push_back(budget);
  }
  return budgets;
}

// Measures the plans of one budget, the best one first.
Result<std::vector<MeasuredPlan>> Tuner::MeasurePlans(const Tuning& tuning) {
  TQ_ASSIGN_OR_RETURN(std::vector<MeasuredPlan> plans, Plans(tuning));
  std::vector<EvaluationCandidate> candidates;
  for (const MeasuredPlan& plan : plans) candidates.push_back(OfLayers(plan.layers));
  TQ_ASSIGN_OR_RETURN(auto results, Measure(candidates));
  for (size_t i = 0; i < results.size(); ++i) plans[i].result = std::move(results[i]);
  std::ranges::sort(plans, {},
                    [](const MeasuredPlan& plan) { return plan.result.divergence.kl_mean; });
  return plans;
}

Result<Tuning> Tuner::Run() {
  TQ_RETURN_IF_ERROR(FindBits());
  Tuning tuning;
  if (options_.earlier != nullptr) {
    tuning = {options_.earlier->sensitivities, options_.earlier->weights, {}};
  } else {
    TQ_ASSIGN_OR_RETURN(tuning.sensitivities, Sensitivities());
    TQ_ASSIGN_OR_RETURN(tuning.weights, Weights());
  }
  for (const double budget : Budgets(tuning)) {
    budget_ = budget;
    TQ_ASSIGN_OR_RETURN(tuning.plans, MeasurePlans(tuning));
    const double kl = tuning.plans.front().result.divergence.kl_mean;
    if (options_.budget_bits > 0 || kl <= options_.max_kl) return tuning;
  }
  return Fail(ErrorCode::kInvalidArgument, "tune: no plan up to {} keeps a mean KL of {}",
              options_.formats.back(), options_.max_kl);
}

// A side of a layer that may be given a better format.
struct Upgrade {
  double saved_per_bit = 0;
  size_t format = 0;  // the better one
};

// The best step up from `format`; nothing saved: there is none.
Upgrade BestUpgrade(double sensitivity, const std::vector<double>& weights,
                    const std::vector<double>& bits, size_t format, double bits_left) {
  Upgrade best;
  for (size_t next = format + 1; next < bits.size(); ++next) {
    const double price = bits[next] - bits[format];
    if (price > bits_left) break;
    const double saved = sensitivity * (weights[format] - weights[next]) / price;
    if (saved > best.saved_per_bit) best = {saved, next};
  }
  return best;
}

}  // namespace

Allocation Allocate(const AllocationInput& input, double budget_bits) {
  const size_t num_layers = input.sensitivities.k.size();
  Allocation allocation = {std::vector<size_t>(num_layers, 0),
                           std::vector<size_t>(num_layers, input.least_v)};
  const double least = input.bits.front() + input.bits[input.least_v];
  double left = (2 * budget_bits - least) * static_cast<double>(num_layers);
  for (;;) {
    Upgrade best;
    size_t* upgraded = nullptr;
    const auto consider = [&](double sensitivity, const std::vector<double>& weights,
                              size_t* format) {
      const Upgrade upgrade = BestUpgrade(sensitivity, weights, input.bits, *format, left);
      if (upgrade.saved_per_bit <= best.saved_per_bit) return;
      best = upgrade;
      upgraded = format;
    };
    for (size_t i = 0; i < num_layers; ++i) {
      consider(input.sensitivities.k[i], input.weights.k, &allocation.k[i]);
      consider(input.sensitivities.v[i], input.weights.v, &allocation.v[i]);
    }
    if (upgraded == nullptr) return allocation;
    left -= input.bits[best.format] - input.bits[*upgraded];
    *upgraded = best.format;
  }
}

int64_t TuningTokens(int num_layers, size_t num_formats, int64_t window_tokens) {
  const auto lanes = 2 * static_cast<int64_t>(num_layers) + 2 * static_cast<int64_t>(num_formats) +
                     static_cast<int64_t>(kUniformTried) + 3;
  const auto batches = lanes / static_cast<int64_t>(kLanesAtOnce) + 3;
  return (lanes + batches) * window_tokens;
}

Result<Tuning> Tune(const std::shared_ptr<const Model>& model,
                    const std::vector<std::vector<int32_t>>& windows,
                    const TuningOptions& options) {
  TQ_RETURN_IF_ERROR(CheckOptions(options));
  return Tuner(model, windows, options).Run();
}

}  // namespace turboquant
