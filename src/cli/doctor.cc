// turboquant doctor: what of this machine and model helps or hurts, and what to do about it.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/read_bandwidth.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "kernels/self_check.h"
#include "planner/health.h"
#include "planner/host.h"

namespace turboquant::cli {
namespace {

struct DoctorFlags {
  std::string model;
  int port = 8000;
  int threads = 0;
  double seconds = 4;  // of the kernels; bandwidth takes about one more
  bool json = false;
};

// TURBOQUANT_ISA chooses what reads the cache; products of weights are the CPU's best in any case.
const char* AdviceForWrong(KernelOp op) {
  return op == KernelOp::kMatmul || op == KernelOp::kQuantizeRow
             ? "weights in F16 avoid it; report the CPU and compiler"
             : "TURBOQUANT_ISA=scalar avoids it; report the CPU and compiler";
}

// One line for all kernels, or one per kernel that is wrong.
std::vector<HealthCheck> CheckKernels(double seconds) {
  std::vector<HealthCheck> checks;
  int ran = 0, skipped = 0;
  for (const SelfCheckRow& row : RunKernelSelfCheck(seconds)) {
    ++(row.skipped ? skipped : ran);
    if (row.skipped || row.ok) continue;
    checks.push_back({.name = fmt::format("kernel {}", row.name),
                      .health = Health::kFailure,
                      .found = "differs from its plain counterpart",
                      .advice = AdviceForWrong(row.op)});
  }
  if (!checks.empty()) return checks;
  checks.push_back(
      {.name = "kernels",
       .found = fmt::format("{} tested and right, {} not for this CPU", ran, skipped)});
  return checks;
}

HealthCheck ListKernels() {
  HealthCheck check{.name = "kernels chosen"};
  const auto table = SelectKernels("");
  if (!table)
    return {.name = "kernels chosen",
            .health = Health::kFailure,
            .found = table.error().message,
            .advice = "unset TURBOQUANT_ISA"};
  for (const KvCacheDtype dtype : kAllKvCacheDtypes)
    check.found += fmt::format("{}{}", check.found.empty() ? "" : " ", table->of(dtype).qk_name);
  return check;
}

HealthCheck CheckBandwidth(int threads) {
  constexpr size_t kBytes = size_t{256} << 20;
  const double one = MeasureReadBandwidth(1, kBytes, 3) / 1e9;
  const double all = threads > 1 ? MeasureReadBandwidth(threads, kBytes, 3) / 1e9 : one;
  HealthCheck check{.name = "read bandwidth"};
  check.found = fmt::format("{:.1f} GB/s with 1 thread, {:.1f} with {}", one, all, threads);
  if (all < 0.9 * one) {
    check.health = Health::kWarning;
    check.advice = "several threads read less than one: the cores are shared or busy; try -t 1";
  } else if (all < 2) {
    check.health = Health::kWarning;
    check.advice = "decoding is bound by this: close what else uses the memory, or move";
  }
  return check;
}

std::vector<HealthCheck> Examine(const DoctorFlags& flags) {
  const int threads = flags.threads > 0 ? flags.threads : UsablePhysicalCores();
  const std::string model = flags.model.empty() ? DefaultModelPath() : flags.model;
  std::vector<HealthCheck> checks = {CheckCpu(),
                                     ListKernels(),
                                     CheckMemory(),
                                     CheckOvercommit(),
                                     CheckHugePages(),
                                     CheckNuma(),
                                     CheckThreads(flags.threads),
                                     CheckModelFile(model),
                                     CheckPort(flags.port)};
  for (HealthCheck& check : CheckKernels(flags.seconds)) checks.push_back(std::move(check));
  checks.push_back(CheckBandwidth(threads));
  return checks;
}

std::string ToText(const std::vector<HealthCheck>& checks) {
  std::string text;
  for (const HealthCheck& check : checks) {
    text += fmt::format("{:<8} {:<16} {}\n", Name(check.health), check.name, check.found);
    if (!check.advice.empty()) text += fmt::format("{:<26}-> {}\n", "", check.advice);
  }
  return text;
}

std::string ToJson(const std::vector<HealthCheck>& checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const HealthCheck& check : checks) {
    list.push_back({{"name", check.name},
                    {"status", Name(check.health)},
                    {"found", check.found},
                    {"advice", check.advice}});
  }
  const nlohmann::ordered_json json = {{"schema", "turboquant.doctor/1"}, {"checks", list}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

int Doctor(const DoctorFlags& flags) {
  const std::vector<HealthCheck> checks = Examine(flags);
  Print(flags.json ? ToJson(checks) : ToText(checks));
  for (const HealthCheck& check : checks) {
    if (check.health == Health::kFailure) return kExitFailed;
  }
  return kExitDone;
}

}  // namespace

Verb AddDoctor(CLI::App* program) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* verb = program->add_subcommand(
      "doctor", "what of this machine and model helps or hurts, and what to do");
  verb->add_option("-m,--model", flags->model,
                   "GGUF file (default: the model that set-up installed)");
  verb->add_option("--port", flags->port, "port that a server would listen on")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  verb->add_option("-t,--threads", flags->threads, "threads that you mean to use")
      ->check(CLI::Range(1, 1024));
  verb->add_option("--seconds", flags->seconds, "time for testing kernels")
      ->check(CLI::Range(0.0, 600.0))
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "print one JSON document");
  return {verb, [flags] { return Doctor(*flags); }};
}

}  // namespace turboquant::cli
