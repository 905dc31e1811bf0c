// turboquant eval: what a cache format costs in quality, against the model's own full-precision
// cache.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "eval/evaluation.h"
#include "model/tokenizer.h"
#include "planner/host.h"

namespace turboquant::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  std::vector<std::string> formats = {"int8"};
  std::vector<std::string> texts;
  std::string calibration_text;
  int context = 2048;
  int windows = 8;
  int first_scored = 512;
  std::string weights = "f32";
  bool json = false;
};

nlohmann::ordered_json ToJson(const DivergenceSummary& summary) {
  return {{"num_tokens", summary.num_tokens},
          {"kl_divergence",
           {{"mean", summary.kl_mean},
            {"standard_error", summary.kl_standard_error},
            {"median", summary.kl_median},
            {"p99", summary.kl_p99},
            {"p999", summary.kl_p999},
            {"max", summary.kl_max}}},
          {"top1_agreement", summary.top1_agreement},
          {"perplexity", summary.perplexity},
          {"perplexity_reference", summary.perplexity_reference}};
}

nlohmann::ordered_json ToJson(const EvaluationResult& result) {
  nlohmann::ordered_json document = ToJson(result.divergence);
  document["kv_cache_dtype"] = result.kv_cache_dtype;
  document["bits_per_value"] = result.bits_per_value;
  document["effective_bits"] = result.effective_bits;
  document["saturation"] = {{"k_end_code_share", result.k_end_code_share},
                            {"v_end_code_share", result.v_end_code_share}};
  if (!result.calibration.empty()) document["calibration"] = result.calibration;
  document["length_buckets"] = nlohmann::ordered_json::array();
  for (const LengthBucket& bucket : result.buckets) {
    nlohmann::ordered_json entry = ToJson(bucket.divergence);
    entry["begin"] = bucket.begin;
    entry["end"] = bucket.end;
    document["length_buckets"].push_back(std::move(entry));
  }
  return document;
}

std::string ToText(const std::vector<EvaluationResult>& results) {
  std::string text =
      fmt::format("{:<34}{:>7}{:>8}{:>11}{:>10}{:>11}{:>11}{:>8}{:>9}\n", "kv cache", "bits",
                  "eff.", "KL mean", "+-", "KL median", "KL 99.9 %", "top-1", "PPL");
  for (const EvaluationResult& result : results) {
    const DivergenceSummary& d = result.divergence;
    text += fmt::format(
        "{:<34}{:>7.3f}{:>8.3f}{:>11.3g}{:>10.1g}{:>11.3g}{:>11.3g}{:>8.2f}{:>9.3f}\n",
        result.kv_cache_dtype, result.bits_per_value, result.effective_bits, d.kl_mean,
        d.kl_standard_error, d.kl_median, d.kl_p999, 100 * d.top1_agreement, d.perplexity);
  }
  const DivergenceSummary& d = results.front().divergence;
  text += fmt::format("{} tokens scored; reference (f32 cache): PPL {:.3f}\n", d.num_tokens,
                      d.perplexity_reference);
  for (const EvaluationResult& result : results) {
    if (result.calibration.empty()) continue;
    text += fmt::format("static scales: {}\n", result.calibration);
    break;
  }
  return text;
}

// "int8" or "int8@per_head": each format of the list may carry its own granularity.
EvaluationCandidate ParseCandidate(const std::string& text, const std::string& granularity) {
  const size_t at = text.find('@');
  return at == std::string::npos ? EvaluationCandidate{text, granularity}
                                 : EvaluationCandidate{text.substr(0, at), text.substr(at + 1)};
}

Result<std::vector<std::vector<int32_t>>> ReadWindows(const EvalFlags& flags, const Model& model) {
  std::vector<std::vector<int32_t>> windows;
  const int files = static_cast<int>(flags.texts.size());
  for (int i = 0; i < files; ++i) {
    const int share = flags.windows * (i + 1) / files - flags.windows * i / files;
    if (share == 0) continue;
    TQ_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.texts[static_cast<size_t>(i)]));
    TQ_ASSIGN_OR_RETURN(auto of_file, MakeWindows(model, text, share, flags.context));
    for (auto& window : of_file) windows.push_back(std::move(window));
  }
  return windows;
}

Result<int> Eval(const EvalFlags& flags) {
  TQ_ASSIGN_OR_RETURN(const EngineOptions engine, flags.model.ToEngineOptions());
  const WeightMode weights = flags.weights == "f32" ? WeightMode::kDequantized : WeightMode::kFile;
  TQ_ASSIGN_OR_RETURN(auto model,
                      Model::Load({.path = flags.model.ModelPath(), .weights = weights}));
  TQ_ASSIGN_OR_RETURN(const auto windows, ReadWindows(flags, *model));
  std::vector<int32_t> calibration;
  if (!flags.calibration_text.empty()) {
    TQ_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.calibration_text));
    TQ_ASSIGN_OR_RETURN(auto window, MakeWindows(*model, text, 1, flags.context));
    calibration = std::move(window.front());
  }
  EvaluationOptions options{
      .candidates = {},
      .cache = engine.cache,
      .context = flags.context,
      .first_scored = flags.first_scored,
      .num_threads = engine.num_threads > 0 ? engine.num_threads : UsablePhysicalCores(),
      .isa = engine.isa,
      .stop = engine.stop,
      .progress = {}};
  for (const std::string& format : flags.formats) {
    options.candidates.push_back(ParseCandidate(format, flags.model.kv_scale_granularity));
  }
  ProgressLine progress("eval");
  options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
  if (StderrIsTerminal()) {
    fmt::print(stderr, "eval: {} windows of {} tokens through {} caches on {} threads\n",
               windows.size(), flags.context, options.candidates.size() + 1, options.num_threads);
  }
  TQ_ASSIGN_OR_RETURN(const std::vector<EvaluationResult> results,
                      Evaluate(model, windows, calibration, options));
  progress.Clear();
  if (!flags.json) {
    Print(ToText(results));
    return kExitDone;
  }
  nlohmann::ordered_json document = {{"weights", flags.weights},
                                     {"context", flags.context},
                                     {"windows", windows.size()},
                                     {"first_scored", flags.first_scored},
                                     {"results", nlohmann::ordered_json::array()}};
  for (const EvaluationResult& result : results) document["results"].push_back(ToJson(result));
  Print(document.dump(2) + "\n");
  return kExitDone;
}

}  // namespace

Verb AddEval(CLI::App* program) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb = program->add_subcommand(
      "eval", "what a cache format costs in quality: KL divergence to the f32 cache");
  AddModelFlags(verb, &flags->model);
  verb->remove_option(verb->get_option("--kv-cache-dtype"));
  verb->remove_option(verb->get_option("--max-model-len"));
  verb->add_option("--kv-cache-dtype", flags->formats,
                   "formats to measure, each may carry a granularity: int8,int4@per_group:32")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--text", flags->texts, "text files to score; windows are shared out evenly")
      ->required()
      ->delimiter(',');
  verb->add_option("--calibration-text", flags->calibration_text,
                   "text that static scales are taken from (one window)");
  verb->add_option("--ctx", flags->context, "tokens per window")
      ->check(CLI::Range(2, 1 << 26))
      ->capture_default_str();
  verb->add_option("--windows", flags->windows, "windows in all")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--first-scored", flags->first_scored, "first position of a window that counts")
      ->check(CLI::Range(0, 1 << 26))
      ->capture_default_str();
  verb->add_option("--weights", flags->weights,
                   "f32: dequantized, so that only the cache is measured; file: as served")
      ->check(CLI::IsMember({"f32", "file"}))
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "print one JSON document");
  return {verb, [flags] {
            const Result<int> status = Eval(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
