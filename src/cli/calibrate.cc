// turboquant calibrate: runs the model that will serve over text and writes the ranges of its keys
// and values, for static scales.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file.h"
#include "calibration/builtin_texts.h"
#include "calibration/calibration_table.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/prompts.h"
#include "cli/verbs.h"
#include "eval/observation.h"
#include "model/tokenizer.h"
#include "planner/host.h"

namespace turboquant::cli {
namespace {

struct CalibrateFlags {
  ModelFlags model;
  std::vector<std::string> texts;
  std::string prompts;
  std::string clip = "max";
  std::string output = "scales.json";
  int context = 2048;
  int64_t max_tokens = 65536;
  bool json = false;
};

Result<std::vector<Prompt>> ReadSources(const CalibrateFlags& flags, const Tokenizer& tokenizer) {
  std::vector<Prompt> sources;
  for (const std::string& path : flags.texts) {
    TQ_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    sources.push_back({path, tokenizer.Encode(text, true, false)});
  }
  if (!flags.prompts.empty()) {
    TQ_ASSIGN_OR_RETURN(auto prompts, ReadPrompts(flags.prompts, tokenizer, false));
    for (Prompt& prompt : prompts) sources.push_back(std::move(prompt));
  }
  if (!sources.empty()) return sources;
  for (const BuiltinText& text : BuiltinCalibrationTexts()) {
    sources.push_back({fmt::format("built-in {}", text.name),
                       tokenizer.Encode(std::string(text.content), true, false)});
  }
  return sources;
}

// Sequences of up to `context` tokens, the sources taking turns so that all are there when
// max_tokens ends it.
std::vector<std::vector<int32_t>> CutWindows(const std::vector<Prompt>& sources, int context,
                                             int64_t max_tokens) {
  std::vector<std::vector<int32_t>> windows;
  int64_t left = max_tokens;
  bool more = true;
  for (size_t at = 0; more && left > 0; at += static_cast<size_t>(context)) {
    more = false;
    for (const Prompt& source : sources) {
      if (at >= source.tokens.size() || left <= 0) continue;
      const auto count = std::min(
          {source.tokens.size() - at, static_cast<size_t>(context), static_cast<size_t>(left)});
      const auto from = source.tokens.begin() + static_cast<std::ptrdiff_t>(at);
      windows.emplace_back(from, from + static_cast<std::ptrdiff_t>(count));
      left -= static_cast<int64_t>(count);
      more = true;
    }
  }
  return windows;
}

// Mean over heads of the share of values beyond the range, by layer.
double MeanClippedShare(const KvStatistics& statistics, int layer, KvSide side,
                        const CalibratedSide& calibrated) {
  double share = 0;
  for (int head = 0; head < statistics.num_kv_heads(layer); ++head) {
    share += ClippedShare(statistics.Head(layer, head, side).magnitudes,
                          static_cast<float>(calibrated.ranges[static_cast<size_t>(head)]));
  }
  return share / statistics.num_kv_heads(layer);
}

nlohmann::ordered_json ReportDocument(const KvStatistics& statistics, const CalibrationTable& table,
                                      const std::vector<std::string>& warnings) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (size_t i = 0; i < table.layers.size(); ++i) {
    const CalibratedLayer& layer = table.layers[i];
    const int index = static_cast<int>(i);
    layers.push_back(
        {{"k",
          {{"ranges", layer.k.ranges},
           {"rotated_ranges", layer.k.rotated_ranges},
           {"clipped_share", MeanClippedShare(statistics, index, KvSide::kKey, layer.k)}}},
         {"v",
          {{"ranges", layer.v.ranges},
           {"rotated_ranges", layer.v.rotated_ranges},
           {"clipped_share", MeanClippedShare(statistics, index, KvSide::kValue, layer.v)}}}});
  }
  return {{"clip_rule", table.clip_rule},
          {"num_tokens", table.num_tokens},
          {"warnings", warnings},
          {"layers", std::move(layers)}};
}

std::string ToText(const KvStatistics& statistics, const CalibrationTable& table) {
  const auto largest = [](const std::vector<double>& ranges) {
    return *std::ranges::max_element(ranges);
  };
  std::string text = fmt::format("{:<7}{:>11}{:>11}{:>12}{:>11}{:>11}{:>12}\n", "layer", "K range",
                                 "rotated", "clipped", "V range", "rotated", "clipped");
  for (size_t i = 0; i < table.layers.size(); ++i) {
    const CalibratedLayer& layer = table.layers[i];
    const int index = static_cast<int>(i);
    text += fmt::format("{:<7}{:>11.4g}{:>11.4g}{:>12.2g}{:>11.4g}{:>11.4g}{:>12.2g}\n", i,
                        largest(layer.k.ranges), largest(layer.k.rotated_ranges),
                        MeanClippedShare(statistics, index, KvSide::kKey, layer.k),
                        largest(layer.v.ranges), largest(layer.v.rotated_ranges),
                        MeanClippedShare(statistics, index, KvSide::kValue, layer.v));
  }
  return text;
}

Result<int> Calibrate(const CalibrateFlags& flags) {
  TQ_ASSIGN_OR_RETURN(const ClipRule rule, ParseClipRule(flags.clip));
  TQ_ASSIGN_OR_RETURN(const EngineOptions engine, flags.model.ToEngineOptions());
  const std::string path = flags.model.ModelPath();
  TQ_ASSIGN_OR_RETURN(auto model, Model::Load({.path = path}));
  TQ_ASSIGN_OR_RETURN(const std::vector<Prompt> sources, ReadSources(flags, model->tokenizer()));
  const auto windows = CutWindows(sources, flags.context, flags.max_tokens);
  ProgressLine progress("calibrate");
  TQ_ASSIGN_OR_RETURN(
      const auto statistics,
      ObserveModel(
          model, windows,
          {.num_threads = engine.num_threads > 0 ? engine.num_threads : UsablePhysicalCores(),
           .isa = engine.isa,
           .stop = engine.stop,
           .progress = [&](int64_t done, int64_t total) { progress.Update(done, total); }}));
  progress.Clear();
  CalibrationTable table = MakeCalibrationTable(*statistics, rule);
  TQ_ASSIGN_OR_RETURN(table.model, FingerprintModel(path));
  for (const Prompt& source : sources) table.texts.push_back(source.name);
  TQ_RETURN_IF_ERROR(WriteFileAtomically(flags.output, turboquant::ToJson(table)));
  const std::vector<std::string> warnings = CalibrationWarnings(*statistics, table);
  if (flags.json) {
    auto document = ReportDocument(*statistics, table, warnings);
    document["output"] = flags.output;
    Print(document.dump(2) + "\n");
    return kExitDone;
  }
  for (const std::string& warning : warnings) spdlog::warn("{}", warning);
  Print(ToText(*statistics, table) + fmt::format("{}: {} tokens, clip rule {}\n", flags.output,
                                                 table.num_tokens, table.clip_rule));
  return kExitDone;
}

}  // namespace

Verb AddCalibrate(CLI::App* program) {
  auto flags = std::make_shared<CalibrateFlags>();
  CLI::App* verb = program->add_subcommand(
      "calibrate", "observe the ranges of K and V on text and write them for --kv-scales");
  AddLoadFlags(verb, &flags->model);
  verb->add_option("--text", flags->texts,
                   "text files (default, without prompts either: a small built-in mix)")
      ->delimiter(',');
  verb->add_option("--prompts", flags->prompts,
                   "JSON lines with \"prompt\", \"text\" or \"messages\" (chat)");
  verb->add_option("--clip", flags->clip,
                   "range of a scale: max, mse or percentile:P (P percent of the values fit)")
      ->capture_default_str();
  verb->add_option("--ctx", flags->context, "tokens per sequence that texts are cut into")
      ->check(CLI::Range(1, 1 << 26))
      ->capture_default_str();
  verb->add_option("--max-tokens", flags->max_tokens, "stop after so many tokens, from all sources")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  verb->add_option("-o,--output", flags->output, "file to write")->capture_default_str();
  verb->add_flag("--json", flags->json, "print the report as one JSON document");
  return {verb, [flags] {
            const Result<int> status = Calibrate(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
