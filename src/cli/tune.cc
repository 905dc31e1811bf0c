// turboquant tune: formats by layer for a budget of bits or a largest KL, as a plan for --kv-plan.
#include <fmt/format.h>

#include <algorithm>
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
  TuningOptions tuning;
  int context = 1024;
  int windows = 2;
  int first_scored = 256;
  std::string output = "plan.json";
  bool json = false;
};

nlohmann::ordered_json ToJson(const Tuning& tuning, const TuneFlags& flags) {
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
  return {{"output", flags.output},
          {"plan", tuning.plans.front().name},
          {"plans", std::move(plans)},
          {"sensitivities", {{"k", tuning.sensitivities.k}, {"v", tuning.sensitivities.v}}},
          {"formats", flags.tuning.formats},
          {"weights", {{"k", tuning.weights.k}, {"v", tuning.weights.v}}}};
}

std::string ToText(const Tuning& tuning, const TuneFlags& flags) {
  std::string text = fmt::format("KL of one side of one layer in {}:\n{:<7}{:>11}{:>11}\n",
                                 flags.tuning.probe, "layer", "K", "V");
  for (size_t i = 0; i < tuning.sensitivities.k.size(); ++i) {
    text += fmt::format("{:<7}{:>11.3g}{:>11.3g}\n", i, tuning.sensitivities.k[i],
                        tuning.sensitivities.v[i]);
  }
  text += fmt::format("\n{:<44}{:>7}{:>11}{:>10}{:>8}\n", "plan", "bits", "KL mean", "+-", "top-1");
  for (const MeasuredPlan& plan : tuning.plans) {
    const DivergenceSummary& d = plan.result.divergence;
    text += fmt::format("{:<44}{:>7.3f}{:>11.3g}{:>10.1g}{:>8.2f}\n", plan.name,
                        plan.result.bits_per_value, d.kl_mean, d.kl_standard_error,
                        100 * d.top1_agreement);
  }
  const MeasuredPlan& best = tuning.plans.front();
  return text + fmt::format("{}: {}\n  {}\n", flags.output, best.name, LayerOverrides(best.layers));
}

Result<Tuning> Run(const TuneFlags& flags, const std::shared_ptr<const Model>& model,
                   const EngineOptions& engine, ProgressLine* progress) {
  std::vector<std::vector<int32_t>> windows;
  for (const std::string& path : flags.texts) {
    TQ_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    TQ_ASSIGN_OR_RETURN(auto of_file, MakeWindows(*model, text, flags.windows, flags.context));
    for (auto& window : of_file) windows.push_back(std::move(window));
  }
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
  return Tune(model, windows, options);
}

Result<int> TuneVerb(const TuneFlags& flags) {
  TQ_ASSIGN_OR_RETURN(const EngineOptions engine, flags.model.ToEngineOptions());
  const std::string path = flags.model.ModelPath();
  TQ_ASSIGN_OR_RETURN(const auto model,
                      Model::Load({.path = path, .weights = WeightMode::kDequantized}));
  ProgressLine progress("tune");
  TQ_ASSIGN_OR_RETURN(const Tuning tuning, Run(flags, model, engine, &progress));
  progress.Clear();
  const MeasuredPlan& best = tuning.plans.front();
  KvPlan plan = {
      .model = {},
      .layers = best.layers,
      .bits_per_value = best.result.bits_per_value,
      .made_by = flags.tuning.budget_bits > 0
                     ? fmt::format("budget of {} bits: {}", flags.tuning.budget_bits, best.name)
                     : fmt::format("mean KL up to {}: {}", flags.tuning.max_kl, best.name)};
  TQ_ASSIGN_OR_RETURN(plan.model, FingerprintModel(path));
  TQ_RETURN_IF_ERROR(WriteFileAtomically(flags.output, turboquant::ToJson(plan)));
  Print(flags.json ? ToJson(tuning, flags).dump(2) + "\n" : ToText(tuning, flags));
  return kExitDone;
}

}  // namespace

Verb AddTune(CLI::App* program) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* verb = program->add_subcommand(
      "tune", "find formats by layer for a budget of bits or a largest KL, for --kv-plan");
  AddLoadFlags(verb, &flags->model);
  CLI::Option* budget = verb->add_option("--budget-bits", flags->tuning.budget_bits,
                                         "bits per value of closed blocks")
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
            const Result<int> status = TuneVerb(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
