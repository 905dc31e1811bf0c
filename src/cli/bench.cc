// turboquant bench: tokens per second at depth, formats side by side.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/read_bandwidth.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "eval/throughput.h"
#include "planner/host.h"

namespace turboquant::cli {
namespace {

struct BenchFlags {
  ModelFlags model;
  std::vector<std::string> formats = {"f16", "int8"};
  std::vector<int> depths = {0};
  std::vector<int> batches = {1};
  int prompt = 512;
  int gen = 32;
  int repetitions = 3;
  bool json = false;
};

nlohmann::ordered_json ToJson(const std::vector<ThroughputRow>& rows, double read_bandwidth) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ThroughputRow& row : rows) {
    nlohmann::ordered_json entry = {{"test", row.test},
                                    {"depth", row.depth},
                                    {"batch", row.batch},
                                    {"kv_cache_dtype", row.kv_cache_dtype},
                                    {"tokens_per_second",
                                     {{"median", row.Median()},
                                      {"min", row.Min()},
                                      {"max", row.Max()},
                                      {"samples", row.tokens_per_second}}},
                                    {"kv_bytes", row.kv_bytes}};
    if (row.attention_gb_per_s > 0) entry["attention_gb_per_s"] = row.attention_gb_per_s;
    entry["read_bandwidth_gb_per_s"] = read_bandwidth;
    list.push_back(std::move(entry));
  }
  return {{"rows", std::move(list)}};
}

std::string ToText(const std::vector<ThroughputRow>& rows, double read_bandwidth) {
  std::string text = fmt::format("{:<18}{:>6}  {:<18}{:>10}{:>20}{:>12}{:>16}\n", "test", "batch",
                                 "kv cache", "tokens/s", "min - max", "KV", "attention");
  for (const ThroughputRow& row : rows) {
    const std::string attention =
        row.attention_gb_per_s > 0 ? fmt::format("{:.1f} GB/s", row.attention_gb_per_s) : "";
    text += fmt::format("{:<18}{:>6}  {:<18}{:>10.1f}{:>20}{:>12}{:>16}\n",
                        fmt::format("{} @ d{}", row.test, row.depth), row.batch, row.kv_cache_dtype,
                        row.Median(), fmt::format("{:.1f} - {:.1f}", row.Min(), row.Max()),
                        FormatBytes(row.kv_bytes), attention);
  }
  return text + fmt::format("streaming read of this machine, same threads, same run: {:.1f} GB/s\n",
                            read_bandwidth);
}

Result<int> Bench(const BenchFlags& flags) {
  TQ_ASSIGN_OR_RETURN(const EngineOptions engine, flags.model.ToEngineOptions());
  TQ_ASSIGN_OR_RETURN(auto model, Model::Load({.path = flags.model.ModelPath()}));
  ThroughputOptions options{
      .kv_cache_dtypes = flags.formats,
      .cache = engine.cache,
      .depths = flags.depths,
      .batches = flags.batches,
      .prompt_tokens = flags.prompt,
      .gen_tokens = flags.gen,
      .repetitions = flags.repetitions,
      .num_threads = engine.num_threads > 0 ? engine.num_threads : UsablePhysicalCores(),
      .isa = engine.isa,
      .stop = engine.stop};
  ProgressLine progress("bench");
  options.progress = [&](int64_t done, int64_t total) { progress.Update(done, total); };
  if (StderrIsTerminal())
    fmt::print(stderr, "bench: {} tokens to compute on {} threads\n", TotalTokens(options),
               options.num_threads);
  constexpr size_t kReadBytes = size_t{512} << 20;
  const double read_bandwidth = MeasureReadBandwidth(options.num_threads, kReadBytes, 3) / 1e9;
  TQ_ASSIGN_OR_RETURN(const std::vector<ThroughputRow> rows,
                      MeasureThroughput(std::move(model), options));
  progress.Clear();
  Print(flags.json ? ToJson(rows, read_bandwidth).dump(2) + "\n" : ToText(rows, read_bandwidth));
  return kExitDone;
}

}  // namespace

Verb AddBench(CLI::App* program) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* verb =
      program->add_subcommand("bench", "tokens per second at depth, cache formats side by side");
  AddModelFlags(verb, &flags->model);
  verb->remove_option(verb->get_option("--kv-cache-dtype"));
  verb->remove_option(verb->get_option("--max-model-len"));
  verb->add_option("--kv-cache-dtype", flags->formats, "formats to measure, interleaved")
      ->delimiter(',')
      ->capture_default_str();
  verb->add_option("--depth", flags->depths, "tokens in the cache before the test")
      ->delimiter(',')
      ->check(CLI::Range(0, 1 << 26))
      ->capture_default_str();
  verb->add_option("--batch", flags->batches, "sequences that run together")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  verb->add_option("--prompt", flags->prompt, "prompt tokens of the prefill test; 0 = none")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  verb->add_option("--gen", flags->gen, "tokens of the decode test; 0 = none")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  verb->add_option("-r,--repetitions", flags->repetitions, "samples per row")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "print one JSON document");
  return {verb, [flags] {
            const Result<int> status = Bench(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
