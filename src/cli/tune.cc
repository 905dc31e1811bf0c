// turboquant tune: formats by layer for a budget of bits or a largest KL, as a plan for --kv-plan.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "calibration/kv_plan.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "eval/tuning.h"
#include "planner/host.h"

namespace turboquant::cli {
namespace {

struct TuneFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  TuningOptions tuning;         // budget_bits: one of these at a time
  std::vector<double> budgets;  // of bits; empty: a largest KL
  int context = 1024;
  int windows = 2;
  int first_scored = 256;
  std::string output = "plan.json";
  bool json = false;
};

// Where the plan of a budget goes: "plan.json", or "plan-4.2.json" where there are several.
std::string OutputOf(const TuneFlags& flags, double budget) {
  if (flags.budgets.size() <= 1) return flags.output;
  const std::filesystem::path path = flags.output;
  const std::string name =
      fmt::format("{}-{}{}", path.stem().string(), budget, path.extension().string());
  return (path.parent_path() / name).string();
}

nlohmann::ordered_json ToJson(const Tuning& tuning, const TuneFlags& flags,
                              const std::string& output) {
  nlohmann::ordered_json plans = nlohmann::ordered_json::array();
  for (const MeasuredPlan& plan : tuning.plans) {
    const DivergenceSummary& d = plan.result.divergence;
    plans.push_back(
        {{"name", plan.name},
         {"bits_per_value", plan.result.bits_per_value},
         {"effective_bits", plan.result.effective_bits},
         {"kl_divergence", {{"mean", d.kl_mean}, {"standard_error", d.kl_standard_error}}},
         {"top1_agreement", d.top1_agreement},
         {"perplexity", d.perplexity},
         {"layers", plan.layers}});
  }
  return {{"output", output},
          {"plan", tuning.plans.front().name},
          {"plans", std::move(plans)},
          {"sensitivities", {{"k", tuning.sensitivities.k}, {"v", tuning.sensitivities.v}}},
          {"formats", flags.tuning.formats},
          {"weights", {{"k", tuning.weights.k}, {"v", tuning.weights.v}}}};
}

std::string SensitivitiesText(const Tuning& tuning, const std::string& probe) {
  std::string text = fmt::format("KL of one side of one layer in {}:\n{:<7}{:>11}{:>11}\n", probe,
                                 "layer", "K", "V");
  for (size_t i = 0; i < tuning.sensitivities.k.size(); ++i) {
    text += fmt::format("{:<7}{:>11.3g}{:>11.3g}\n", i, tuning.sensitivities.k[i],
                        tuning.sensitivities.v[i]);
  }
  return text;
}

std::string PlansText(const Tuning& tuning, const std::string& output) {
  std::string text =
      fmt::format("\n{:<44}{:>7}{:>11}{:>10}{:>8}\n", "plan", "bits", "KL mean", "+-", "top-1");
  for (const MeasuredPlan& plan : tuning.plans) {
    const DivergenceSummary& d = plan.result.divergence;
    text += fmt::format("{:<44}{:>7.3f}{:>11.3g}{:>10.1g}{:>8.2f}\n", plan.name,
                        plan.result.bits_per_value, d.kl_mean, d.kl_standard_error,
                        100 * d.top1_agreement);
  }
  const MeasuredPlan& best = tuning.plans.front();
  return text + fmt::format("{}: {}\n  {}\n", output, best.name, LayerOverrides(best.layers));
}

Result<std::vector<std::vector<int32_t>>> ReadWindows(const TuneFlags& flags, const Model& model) {
  std::vector<std::vector<int32_t>> windows;
  for (const std::string& path : flags.texts) {
    TQ_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    TQ_ASSIGN_OR_RETURN(auto of_file, MakeWindows(model, text, flags.windows, flags.context));
    for (auto& window : of_file) windows.push_back(std::move(window));
  }
  return windows;
}

// One tuning per budget, or the one for a largest KL. What does not depend on the budget is
// measured once.
Result<std::vector<Tuning>> Run(const TuneFlags& flags, const std::shared_ptr<const Model>& model,
                                const EngineOptions& engine, ProgressLine* progress) {
  TQ_ASSIGN_OR_RETURN(const auto windows, ReadWindows(flags, *model));
  TuningOptions options = flags.tuning;
  options.evaluation.cache.block_size = flags.model.block_size;
  options.evaluation.context = flags.context;
  options.evaluation.first_scored = flags.first_scored;
  options.evaluation.num_threads =
      engine.num_threads > 0 ? engine.num_threads : UsablePhysicalCores();
  options.evaluation.isa = engine.isa;
  options.evaluation.stop = engine.stop;
  options.evaluation.progress = [&](int64_t done, int64_t total) { progress->Update(done, total); };
  if (StderrIsTerminal()) {
    fmt::print(stderr, "tune: about {} tokens through caches, {} windows of {}\n",
               TuningTokens(model->config().num_layers, options.formats.size(),
                            static_cast<int64_t>(windows.size()) * flags.context),
               windows.size(), flags.context);
  }
  std::vector<Tuning> tunings;
  for (size_t i = 0; i == 0 || i < flags.budgets.size(); ++i) {
    if (!flags.budgets.empty()) options.budget_bits = flags.budgets[i];
    options.earlier = tunings.empty() ? nullptr : &tunings.front();
    TQ_ASSIGN_OR_RETURN(Tuning tuning, Tune(model, windows, options));
    tunings.push_back(std::move(tuning));
  }
  return tunings;
}

Status WritePlan(const Tuning& tuning, double budget, const TuneFlags& flags,
                 const ModelFingerprint& model) {
  const MeasuredPlan& best = tuning.plans.front();
  const KvPlan plan = {
      .model = model,
      .layers = best.layers,
      .bits_per_value = best.result.bits_per_value,
      .made_by = budget > 0 ? fmt::format("budget of {} bits: {}", budget, best.name)
                            : fmt::format("mean KL up to {}: {}", flags.tuning.max_kl, best.name)};
  return WriteFileAtomically(OutputOf(flags, budget), turboquant::ToJson(plan));
}

Result<int> TuneVerb(const TuneFlags& flags) {
  TQ_ASSIGN_OR_RETURN(const EngineOptions engine, flags.model.ToEngineOptions());
  const std::string path = flags.model.ModelPath();
  TQ_ASSIGN_OR_RETURN(const auto model,
                      Model::Load({.path = path, .weights = WeightMode::kDequantized}));
  ProgressLine progress("tune");
  TQ_ASSIGN_OR_RETURN(const std::vector<Tuning> tunings, Run(flags, model, engine, &progress));
  progress.Clear();
  TQ_ASSIGN_OR_RETURN(const ModelFingerprint fingerprint, FingerprintModel(path));
  std::string text = SensitivitiesText(tunings.front(), flags.tuning.probe);
  nlohmann::ordered_json documents = nlohmann::ordered_json::array();
  for (size_t i = 0; i < tunings.size(); ++i) {
    const double budget = flags.budgets.empty() ? 0 : flags.budgets[i];
    TQ_RETURN_IF_ERROR(WritePlan(tunings[i], budget, flags, fingerprint));
    text += PlansText(tunings[i], OutputOf(flags, budget));
    documents.push_back(ToJson(tunings[i], flags, OutputOf(flags, budget)));
  }
  if (flags.json) text = (documents.size() == 1 ? documents.front() : documents).dump(2) + "\n";
  Print(text);
  return kExitDone;
}

}  // namespace

Verb AddTune(CLI::App* program) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* verb = program->add_subcommand(
      "tune", "find formats by layer for a budget of bits or a largest KL, for --kv-plan");
  AddLoadFlags(verb, &flags->model);
  CLI::Option* budget = verb->add_option("--budget-bits", flags->budgets,
                                         "bits per value of closed blocks; several (4.2,5.2) make "
                                         "a plan each: plan-4.2.json, plan-5.2.json")
                            ->delimiter(',')
                            ->check(CLI::Range(1.0, 16.0));
  CLI::Option* max_kl = verb->add_option("--max-kl", flags->tuning.max_kl,
                                         "fewest bits that keep this mean KL on the texts")
                            ->check(CLI::PositiveNumber);
  budget->excludes(max_kl);
  verb->add_option("--text", flags->texts, "text files")->required()->delimiter(',');
  verb->add_option("--formats", flags->tuning.formats,
                   "formats to choose from for K and for V, in order of their bits")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--probe", flags->tuning.probe, "format that sensitivities are measured with")
      ->capture_default_str();
  verb->add_option("--least-v", flags->tuning.least_v,
                   "one of the formats, below which V of no layer goes (few bits for V cost more "
                   "at depth than short windows show)");
  verb->add_option("--ctx", flags->context, "tokens per window")
      ->check(CLI::Range(2, 1 << 26))
      ->capture_default_str();
  verb->add_option("--windows", flags->windows, "windows per text")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--first-scored", flags->first_scored, "first position of a window that counts")
      ->check(CLI::Range(0, 1 << 26))
      ->capture_default_str();
  verb->add_option("--block-size", flags->model.block_size, "tokens per cache block")
      ->capture_default_str();
  verb->add_option("-o,--output", flags->output, "file to write")->capture_default_str();
  verb->add_flag("--json", flags->json, "print the report as one JSON document");
  return {verb, [flags] {
            // So that one that cannot be met is refused before anything runs.
            std::ranges::sort(flags->budgets);
            const Result<int> status = TuneVerb(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
