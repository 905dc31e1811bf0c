// turboquant eval: what a cache format costs in quality, against the model's own full-precision
// cache.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/eval_answers.h"
#include "cli/eval_tasks.h"
#include "cli/model_flags.h"
#include "cli/prompts.h"
#include "cli/verbs.h"
#include "eval/evaluation.h"
#include "eval/free_running.h"
#include "eval/gate.h"
#include "eval/report_html.h"
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
  std::string gate;
  std::string clip = "max";
  std::string tasks, free_running, html;
  int max_tokens = 128;
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
  document["saturation"] = {
      {"k_end_code_share", EndCodeShare(result.saturation, KvSide::kKey)},
      {"v_end_code_share", EndCodeShare(result.saturation, KvSide::kValue)},
      {"k_corrected_blocks", NumCorrectedBlocks(result.saturation, KvSide::kKey)},
      {"v_corrected_blocks", NumCorrectedBlocks(result.saturation, KvSide::kValue)},
      {"blocks", NumBlocks(result.saturation)},
      {"warnings", result.saturation_warnings}};
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
    text += fmt::format("{}: static scales from {}; corrected in {} of {} blocks of K, {} of V\n",
                        result.kv_cache_dtype, result.calibration,
                        NumCorrectedBlocks(result.saturation, KvSide::kKey),
                        NumBlocks(result.saturation),
                        NumCorrectedBlocks(result.saturation, KvSide::kValue));
    for (const std::string& line : result.saturation_warnings) text += "  " + line + "\n";
  }
  return text;
}

Result<double> ParseTemperature(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() ||
      !(value >= 0.01 && value <= 100)) {
    return Fail(ErrorCode::kInvalidArgument,
                "eval: temperature '{}': want a number from 0.01 to 100", text);
  }
  return value;
}

// "int8", "int8@per_head", "int8+none", "int8@per_group:32+none", "int4~512", "int4^0.98": each
// format of the list may carry its own granularity, transform, number of recent tokens and, for
// measurements only, temperature of the softmax.
Result<EvaluationCandidate> ParseCandidate(std::string text, const ModelFlags& flags) {
  EvaluationCandidate candidate = {.kv_cache_dtype = {},
                                   .kv_scale_granularity = flags.kv_scale_granularity,
                                   .kv_transform = flags.kv_transform,
                                   .kv_recent_tokens = flags.kv_recent_tokens};
  if (const size_t power = text.find('^'); power != std::string::npos) {
    TQ_ASSIGN_OR_RETURN(candidate.softmax_temperature, ParseTemperature(text.substr(power + 1)));
    text.resize(power);
  }
  if (const size_t tilde = text.find('~'); tilde != std::string::npos) {
    TQ_ASSIGN_OR_RETURN(const uint64_t recent, ParseSize(text.substr(tilde + 1)));
    candidate.kv_recent_tokens = static_cast<int>(std::min<uint64_t>(recent, INT_MAX));
    text.resize(tilde);
  }
  if (const size_t plus = text.find('+'); plus != std::string::npos) {
    candidate.kv_transform = text.substr(plus + 1);
    text.resize(plus);
  }
  if (const size_t at = text.find('@'); at != std::string::npos) {
    candidate.kv_scale_granularity = text.substr(at + 1);
    text.resize(at);
  }
  candidate.kv_cache_dtype = text;
  return candidate;
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

// The verdict on one candidate.
struct Verdict {
  std::vector<std::string> violations;  // empty: it passes
  // Where it does not: the cheapest change that was measured to pass, if one was found.
  std::optional<EvaluationCandidate> change;
  std::optional<EvaluationResult> change_result;  // where the gate needs text
  std::optional<TaskComparison> change_tasks;     // where it needs tasks
};

bool AllPass(const std::vector<Verdict>& verdicts) {
  return std::ranges::all_of(verdicts,
                             [](const Verdict& verdict) { return verdict.violations.empty(); });
}

struct Measurement {
  std::shared_ptr<const Model> model;
  std::vector<std::vector<int32_t>> windows;
  std::vector<int32_t> calibration;
  EvaluationOptions options;
  std::optional<Gate> gate;
  // By candidate; empty where no text was given.
  std::vector<EvaluationResult> results;
  std::optional<TaskMeasurement> tasks;
};

// Measures what the gate needs of an alternative. True: it passes, and stands in the verdict.
Result<bool> TryChange(const Measurement& measurement, const EvaluationOptions& options,
                       Verdict* verdict) {
  const Gate& gate = *measurement.gate;
  const EvaluationCandidate& candidate = options.candidates.front();
  GateFigures figures;
  std::optional<EvaluationResult> result;
  std::optional<TaskComparison> tasks;
  if (gate.NeedsText()) {
    TQ_ASSIGN_OR_RETURN(auto results, Evaluate(measurement.model, measurement.windows,
                                               measurement.calibration, options));
    result = std::move(results.front());
    figures.text = &result->divergence;
  }
  if (gate.NeedsTasks()) {
    const TaskSet& set = measurement.tasks->tasks;
    TQ_ASSIGN_OR_RETURN(const TaskAnswers answers,
                        AnswerTasks(measurement.model, set, &candidate, options));
    tasks = CompareTasks(set, measurement.tasks->reference, answers);
    figures.tasks = &*tasks;
  }
  if (!GateViolations(gate, figures).empty()) return false;
  verdict->change = candidate;
  verdict->change_result = std::move(result);
  verdict->change_tasks = std::move(tasks);
  return true;
}

// Measures alternatives to a refused candidate, cheapest first, until one passes.
Status FindChange(const Measurement& measurement, const EvaluationCandidate& refused,
                  double bits_per_value, Verdict* verdict) {
  EvaluationOptions options = measurement.options;
  options.cache.kv_cache_dtype_layers.clear();
  for (const EvaluationCandidate& candidate :
       GateAlternatives(refused, bits_per_value, measurement.model->config().head_dim)) {
    options.candidates = {candidate};
    TQ_ASSIGN_OR_RETURN(const bool passes, TryChange(measurement, options, verdict));
    if (passes) return {};
  }
  return {};
}

// One per candidate; none without a gate.
Result<std::vector<Verdict>> Judge(const Measurement& measurement) {
  std::vector<Verdict> verdicts;
  if (!measurement.gate) return verdicts;
  for (size_t i = 0; i < measurement.options.candidates.size(); ++i) {
    GateFigures figures;
    if (!measurement.results.empty()) figures.text = &measurement.results[i].divergence;
    if (measurement.tasks) figures.tasks = &measurement.tasks->results[i];
    Verdict& verdict = verdicts.emplace_back();
    verdict.violations = GateViolations(*measurement.gate, figures);
    if (verdict.violations.empty()) continue;
    const double bits = figures.tasks != nullptr ? figures.tasks->bits_per_value
                                                 : measurement.results[i].bits_per_value;
    TQ_RETURN_IF_ERROR(FindChange(measurement, measurement.options.candidates[i], bits, &verdict));
  }
  return verdicts;
}

// "8.250 bits, KL 0.001, top-1 99.10, tasks 81.7": what was measured of a change that passes.
std::string Figures(const Verdict& verdict) {
  std::string text;
  if (verdict.change_result) {
    const EvaluationResult& result = *verdict.change_result;
    text = fmt::format("{:.3f} bits, KL {:.3g}, top-1 {:.2f}", result.bits_per_value,
                       result.divergence.kl_mean, 100 * result.divergence.top1_agreement);
  }
  if (!verdict.change_tasks) return text;
  const TaskComparison& tasks = *verdict.change_tasks;
  if (text.empty()) text = fmt::format("{:.3f} bits", tasks.bits_per_value);
  return text + fmt::format(", tasks {:.1f}", 100 * tasks.candidate.accuracy);
}

std::string ToText(const Measurement& measurement, const std::vector<Verdict>& verdicts) {
  std::string text;
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const Verdict& verdict = verdicts[i];
    text += fmt::format("gate: {} {}\n",
                        measurement.results.empty() ? measurement.tasks->results[i].kv_cache_dtype
                                                    : measurement.results[i].kv_cache_dtype,
                        verdict.violations.empty() ? "passes" : "does not pass");
    for (const std::string& violation : verdict.violations) text += "  " + violation + "\n";
    if (verdict.violations.empty()) continue;
    if (!verdict.change) {
      text += "  none of the formats up to f16 passes either\n";
      continue;
    }
    text += fmt::format("  cheapest change that passes: {}  ({})\n", ToFlags(*verdict.change),
                        Figures(verdict));
  }
  return text;
}

void AddVerdicts(const std::vector<Verdict>& verdicts, const std::string& gate,
                 nlohmann::ordered_json* document) {
  const bool pass = AllPass(verdicts);
  (*document)["gate"] = gate;
  (*document)["verdict"] = pass ? "pass" : "fail";
  (*document)["reasons"] = nlohmann::ordered_json::array();
  // New keys move what the document holds: no reference from before them.
  nlohmann::ordered_json& rows =
      document->contains("results") ? (*document)["results"] : (*document)["tasks"]["results"];
  for (size_t i = 0; i < verdicts.size(); ++i) {
    nlohmann::ordered_json& result = rows[i];
    result["verdict"] = verdicts[i].violations.empty() ? "pass" : "fail";
    result["reasons"] = verdicts[i].violations;
    for (const std::string& violation : verdicts[i].violations) {
      (*document)["reasons"].push_back(
          fmt::format("{}: {}", result["kv_cache_dtype"].get<std::string>(), violation));
    }
    if (!verdicts[i].change) continue;
    nlohmann::ordered_json change;
    if (verdicts[i].change_result) change = ToJson(*verdicts[i].change_result);
    if (verdicts[i].change_tasks) change["tasks"] = TaskFigures(*verdicts[i].change_tasks);
    change["flags"] = ToFlags(*verdicts[i].change);
    result["change_that_passes"] = std::move(change);
  }
}

Result<Measurement> Prepare(const EvalFlags& flags) {
  TQ_ASSIGN_OR_RETURN(const EngineOptions engine, flags.model.ToEngineOptions());
  const WeightMode weights = flags.weights == "f32" ? WeightMode::kDequantized : WeightMode::kFile;
  Measurement measurement;
  TQ_ASSIGN_OR_RETURN(measurement.model,
                      Model::Load({.path = flags.model.ModelPath(), .weights = weights}));
  TQ_ASSIGN_OR_RETURN(measurement.windows, ReadWindows(flags, *measurement.model));
  if (!flags.calibration_text.empty()) {
    TQ_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.calibration_text));
    TQ_ASSIGN_OR_RETURN(auto window, MakeWindows(*measurement.model, text, 1, flags.context));
    measurement.calibration = std::move(window.front());
  }
  measurement.options = {
      .candidates = {},
      .cache = engine.cache,
      .context = flags.context,
      .first_scored = flags.first_scored,
      .clip_rule = {},
      .collect_errors = !flags.html.empty(),
      .num_threads = engine.num_threads > 0 ? engine.num_threads : UsablePhysicalCores(),
      .isa = engine.isa,
      .stop = engine.stop,
      .progress = {}};
  TQ_ASSIGN_OR_RETURN(measurement.options.clip_rule, ParseClipRule(flags.clip));
  for (const std::string& format : flags.formats) {
    TQ_ASSIGN_OR_RETURN(EvaluationCandidate candidate, ParseCandidate(format, flags.model));
    measurement.options.candidates.push_back(std::move(candidate));
  }
  return measurement;
}

nlohmann::ordered_json ToJson(const EvalFlags& flags, size_t num_windows,
                              const std::vector<EvaluationResult>& results) {
  nlohmann::ordered_json document = {{"weights", flags.weights},
                                     {"context", flags.context},
                                     {"windows", num_windows},
                                     {"first_scored", flags.first_scored},
                                     {"results", nlohmann::ordered_json::array()}};
  for (const EvaluationResult& result : results) document["results"].push_back(ToJson(result));
  return document;
}

// What one call reports: as text, or in one document.
struct Findings {
  std::string text;
  nlohmann::ordered_json document;
};

Status OnText(const EvalFlags& flags, Measurement* measurement, Findings* report) {
  if (StderrIsTerminal()) {
    fmt::print(stderr, "eval: {} windows of {} tokens through {} caches on {} threads\n",
               measurement->windows.size(), flags.context,
               measurement->options.candidates.size() + 1, measurement->options.num_threads);
  }
  TQ_ASSIGN_OR_RETURN(measurement->results,
                      Evaluate(measurement->model, measurement->windows, measurement->calibration,
                               measurement->options));
  if (!flags.html.empty()) {
    TQ_RETURN_IF_ERROR(WriteFileAtomically(
        flags.html,
        EvaluationHtml({*measurement->model, measurement->windows, measurement->results})));
  }
  report->document = ToJson(flags, measurement->windows.size(), measurement->results);
  report->text = ToText(measurement->results);
  return {};
}

Status OnTasks(const EvalFlags& flags, Measurement* measurement, Findings* report) {
  TQ_ASSIGN_OR_RETURN(measurement->tasks,
                      MeasureTasks(flags.tasks, measurement->model, measurement->options));
  report->document["tasks"] = TasksJson(*measurement->tasks);
  report->text += TasksText(*measurement->tasks);
  return {};
}

Status OnPrompts(const EvalFlags& flags, const Measurement& measurement, Findings* report) {
  TQ_ASSIGN_OR_RETURN(
      const std::vector<Prompt> read,
      ReadPrompts(flags.free_running, measurement.model->tokenizer(), /*for_answer=*/true));
  std::vector<std::vector<int32_t>> prompts;
  for (const Prompt& prompt : read) prompts.push_back(prompt.tokens);
  TQ_ASSIGN_OR_RETURN(const std::vector<FreeRunningResult> results,
                      RunFree(measurement.model, prompts,
                              {.evaluation = measurement.options, .max_tokens = flags.max_tokens}));
  report->document["free_running"] = AnswersJson(results, flags.max_tokens);
  report->text += AnswersText(results, prompts.size());
  return {};
}

// The gate, and whether what it judges is given.
Result<std::optional<Gate>> ReadGate(const EvalFlags& flags) {
  if (flags.gate.empty()) return std::nullopt;
  TQ_ASSIGN_OR_RETURN(const Gate gate, ParseGate(flags.gate));
  if (flags.texts.empty() && gate.NeedsText()) {
    return Fail(ErrorCode::kInvalidArgument, "eval: give --text FILE for the gate to judge{}",
                flags.tasks.empty() ? "" : "; with --tasks alone it takes task<=POINTS");
  }
  if (flags.tasks.empty() && gate.NeedsTasks()) {
    return Fail(ErrorCode::kInvalidArgument,
                "eval: gate '{}' limits the loss on tasks: give --tasks FILE, or leave task out",
                flags.gate);
  }
  return gate;
}

Result<int> Eval(const EvalFlags& flags) {
  TQ_ASSIGN_OR_RETURN(const std::optional<Gate> gate, ReadGate(flags));
  if (flags.texts.empty() && flags.tasks.empty() && flags.free_running.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "eval: give --text FILE, --tasks FILE or --free-running FILE");
  }
  TQ_ASSIGN_OR_RETURN(Measurement measurement, Prepare(flags));
  measurement.gate = gate;
  ProgressLine progress("eval");
  measurement.options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
  Findings report;
  if (!flags.texts.empty()) TQ_RETURN_IF_ERROR(OnText(flags, &measurement, &report));
  if (!flags.tasks.empty()) TQ_RETURN_IF_ERROR(OnTasks(flags, &measurement, &report));
  TQ_ASSIGN_OR_RETURN(const std::vector<Verdict> verdicts, Judge(measurement));
  if (gate) AddVerdicts(verdicts, flags.gate, &report.document);
  report.text += ToText(measurement, verdicts);
  if (!flags.free_running.empty()) {
    TQ_RETURN_IF_ERROR(OnPrompts(flags, measurement, &report));
  }
  progress.Clear();
  Print(flags.json ? report.document.dump(2) + "\n" : report.text);
  return AllPass(verdicts) ? kExitDone : kExitRefused;
}

}  // namespace

Verb AddEval(CLI::App* program) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb = program->add_subcommand(
      "eval", "what a cache format costs in quality: KL divergence to the f32 cache");
  AddModelFlags(verb, &flags->model);
  verb->remove_option(verb->get_option("--kv-cache-dtype"));
  verb->remove_option(verb->get_option("--max-model-len"));
  verb->add_option(
          "--kv-cache-dtype", flags->formats,
          "formats to measure, each may carry a granularity, a transform, a number of "
          "recent tokens and a softmax temperature: int8,int4@per_group:32,int8+none,"
          "int4~512,int4^0.98; recipe:NAME rounds as another engine does or evicts blocks, "
          "for comparison (recipe:? lists them)")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--text", flags->texts, "text files to score; windows are shared out evenly")
      ->delimiter(',');
  verb->add_option("--calibration-text", flags->calibration_text,
                   "text that static scales are taken from (one window)");
  verb->add_option("--clip", flags->clip,
                   "range of scales from that text: max, mse or percentile:P")
      ->capture_default_str();
  verb->add_option("--ctx", flags->context, "tokens per window")
      ->check(CLI::Range(2, 1 << 26))
      ->capture_default_str();
  verb->add_option("--windows", flags->windows, "windows in all")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--first-scored", flags->first_scored, "first position of a window that counts")
      ->check(CLI::Range(0, 1 << 26))
      ->capture_default_str();
  verb->add_option("--gate", flags->gate,
                   "limits that every format must keep, else exit 3 and the cheapest change that "
                   "does: kl<=0.005,top1>=98.5,ppl<=0.5%,task<=1% or strict, default, low-bit");
  verb->add_option("--tasks", flags->tasks,
                   "questions with a right answer (JSON lines, by choice or exact): accuracy, and "
                   "what is lost against the f32 cache");
  verb->add_option("--free-running", flags->free_running,
                   "prompts (JSON lines as of calibrate) that each cache answers by itself, "
                   "greedily: how far answers stay the same");
  verb->add_option("--max-tokens", flags->max_tokens, "of an answer to those")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--weights", flags->weights,
                   "f32: dequantized, so that only the cache is measured; file: as served")
      ->check(CLI::IsMember({"f32", "file"}))
      ->capture_default_str();
  verb->add_option("--html", flags->html, "write what was found on the texts as a page");
  verb->add_flag("--json", flags->json, "print one JSON document");
  return {verb, [flags] {
            const Result<int> status = Eval(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
