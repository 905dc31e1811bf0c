// turboquant plan: the memory ledger of a model before anything is loaded; --verify holds it
// against what is allocated.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"
#include "base/read_bandwidth.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "engine/verify_plan.h"
#include "planner/host.h"
#include "planner/report.h"

namespace turboquant::cli {
namespace {

struct PlanFlags {
  ModelFlags model;
  std::string engine = "turboquant";
  std::string memory;          // of the machine or of one rank; empty = this machine
  std::string weights_memory;  // instead of what the model says
  std::string html;
  int max_num_seqs = 1;
  int max_batch_tokens = 512;
  int tensor_parallel_size = 1;
  double bandwidth = 0;  // GB/s; 0 = measured here
  double tolerance = 0.03;
  bool json = false, verify = false;
  bool format_given = false, block_size_given = false;
};

Result<LedgerOptions> ToLedgerOptions(const PlanFlags& flags) {
  LedgerOptions options;
  TQ_ASSIGN_OR_RETURN(options.engine, ParseEngineKind(flags.engine));
  TQ_ASSIGN_OR_RETURN(const EngineOptions engine, flags.model.ToEngineOptions());
  options.cache = engine.cache;
  options.cache.max_num_seqs = flags.max_num_seqs;
  if (!flags.format_given) options.cache.kv_cache_dtype = DefaultFormat(options.engine);
  if (!flags.block_size_given) options.cache.block_size = 0;
  options.tensor_parallel_size = flags.tensor_parallel_size;
  if (!flags.weights_memory.empty()) {
    TQ_ASSIGN_OR_RETURN(options.weights_bytes, ParseSize(flags.weights_memory));
  }
  if (!flags.memory.empty()) {
    TQ_ASSIGN_OR_RETURN(options.usable_bytes, ParseSize(flags.memory));
  } else {
    TQ_ASSIGN_OR_RETURN(options.usable_bytes, UsableMemoryBytes());
  }
  return options;
}

// Measured only where the plan is for this machine.
Bandwidth ReadBandwidth(const PlanFlags& flags, EngineKind engine, int threads) {
  if (flags.bandwidth > 0) return {flags.bandwidth * 1e9, Origin::kExact};
  if (!flags.memory.empty() || engine == EngineKind::kVllm) return {};
  constexpr size_t kBytes = size_t{128} << 20;
  return {MeasureReadBandwidth(threads, kBytes, 3), Origin::kMeasured};
}

std::string VerifyText(const VerifyReport& report) {
  std::string text =
      fmt::format("{:<24}{:>16}{:>16}{:>12}\n", "", "planned", "found", "difference");
  for (const VerifiedFigure& figure : report.figures) {
    const double difference =
        100 * (static_cast<double>(figure.found) / static_cast<double>(figure.planned) - 1);
    text += fmt::format("{:<24}{:>16}{:>16}{:>+8.2f} %  {}\n", figure.name, figure.planned,
                        figure.found, difference, figure.ok() ? "ok" : "OVER TOLERANCE");
  }
  return text;
}

std::string VerifyJson(const VerifyReport& report) {
  nlohmann::ordered_json figures = nlohmann::ordered_json::array();
  for (const VerifiedFigure& figure : report.figures) {
    figures.push_back({{"name", figure.name},
                       {"planned", figure.planned},
                       {"found", figure.found},
                       {"tolerance", figure.tolerance},
                       {"ok", figure.ok()}});
  }
  const nlohmann::ordered_json json = {
      {"schema", "turboquant.plan_verify/1"}, {"ok", report.ok()}, {"figures", figures}};
  return json.dump(2) + "\n";
}

Result<int> Verify(const PlanFlags& flags, const Ledger& ledger, int threads) {
  if (ledger.options.engine != EngineKind::kTurboquant || !ledger.model.is_gguf) {
    return Fail(ErrorCode::kUnsupported,
                "--verify allocates with our own engine: it needs a GGUF and --engine turboquant");
  }
  if (ledger.options.weights_bytes || !flags.memory.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "--verify is about this machine and this file: leave out --memory and "
                "--weights-memory");
  }
  if (!ledger.plan) return std::unexpected(*ledger.refusal);
  TQ_ASSIGN_OR_RETURN(EngineOptions options, flags.model.ToEngineOptions());
  options.cache = ledger.options.cache;
  options.num_threads = threads;
  options.max_batch_tokens = flags.max_batch_tokens;
  TQ_ASSIGN_OR_RETURN(const VerifyReport report, VerifyPlan(flags.model.ModelPath(), ledger,
                                                            std::move(options), flags.tolerance));
  Print(flags.json ? VerifyJson(report) : VerifyText(report));
  return report.ok() ? kExitDone : kExitRefused;
}

Result<int> Plan(const PlanFlags& flags) {
  if (std::isnan(flags.bandwidth))
    return Fail(ErrorCode::kInvalidArgument, "--bandwidth nan: want GB/s");
  TQ_ASSIGN_OR_RETURN(const LedgerOptions options, ToLedgerOptions(flags));
  const int threads = flags.model.threads > 0 ? flags.model.threads : UsablePhysicalCores();
  const std::string path = flags.model.ModelPath();
  TQ_ASSIGN_OR_RETURN(const LedgerSource source,
                      LedgerSource::Open(path, {.max_batch_tokens = flags.max_batch_tokens,
                                                .num_threads = threads}));
  TQ_ASSIGN_OR_RETURN(const Ledger ledger, source.Make(options));
  if (flags.verify) return Verify(flags, ledger, threads);
  TQ_ASSIGN_OR_RETURN(const Answers answers, Answer(source, options));
  const PlanReport report = {.ledger = ledger,
                             .answers = answers,
                             .bandwidth = ReadBandwidth(flags, options.engine, threads)};
  if (!flags.html.empty()) TQ_RETURN_IF_ERROR(WriteFileAtomically(flags.html, PlanHtml(report)));
  Print(flags.json ? PlanJson(report) : PlanText(report));
  return ledger.fits() ? kExitDone : kExitRefused;
}

void AddPlanFlags(CLI::App* verb, PlanFlags* flags) {
  verb->add_option("--engine", flags->engine, "turboquant, llama.cpp or vllm")
      ->capture_default_str();
  verb->add_option("--memory", flags->memory,
                   "memory of the machine, or of one GPU, e.g. 64Gi (default: this machine's)");
  verb->add_option("--weights-memory", flags->weights_memory,
                   "bytes of the weights instead of what the model says, e.g. 4.1G");
  verb->add_option("--max-num-seqs", flags->max_num_seqs, "sequences at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--max-batch-tokens", flags->max_batch_tokens, "tokens of a step")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  verb->add_option("--tensor-parallel-size", flags->tensor_parallel_size,
                   "ranks that share the KV heads (vllm); figures are per rank")
      ->check(CLI::Range(1, 1 << 12))
      ->capture_default_str();
  verb->add_option("--bandwidth", flags->bandwidth,
                   "GB/s that memory can be read at, for the speed at best (default: measured)")
      ->check(CLI::Range(0.001, 1e6));
  verb->add_option("--html", flags->html, "write the plan as a page to this file");
  verb->add_flag("--verify", flags->verify,
                 "load the model, allocate, compare with the allocator and resident memory; exit "
                 "status 3 where they differ");
  verb->add_option("--tolerance", flags->tolerance, "of --verify on resident memory, as a share")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "print one JSON document");
}

}  // namespace

Verb AddPlan(CLI::App* program) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* verb = program->add_subcommand(
      "plan", "the memory ledger of a GGUF or config.json, before anything is loaded");
  AddModelFlags(verb, &flags->model);
  verb->get_option("--model")->description(
      "GGUF, config.json or a folder that holds one (default: the model that set-up installed)");
  AddPlanFlags(verb, flags.get());
  return {verb, [flags, verb] {
            flags->format_given = verb->get_option("--kv-cache-dtype")->count() > 0;
            flags->block_size_given = verb->get_option("--block-size")->count() > 0;
            const Result<int> status = Plan(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
