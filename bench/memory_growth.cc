// What a process holds while one sequence grows, so that two formats can be compared as the system
// sees them.
//
//   memory_growth MODEL.gguf KV_CACHE_DTYPE [TOKENS = 30000] [THREADS = 2]
//
// Feeds TOKENS tokens in steps of 512 and prints every 2,048: resident bytes without the weights,
// how much came per token since the line before, and what the blocks account for. The last line has
// the process's peak (VmHWM) without the weights. One format per process.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/cache_plan.h"
#include "engine/model_runner.h"

namespace turboquant {
namespace {

constexpr int kStepTokens = 512;
constexpr int kTokensPerLine = 2048;

// A field of /proc/self/status that is given in kB, e.g. "VmRSS:".
double StatusBytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kilobytes = 0;
    if (word == field && status >> kilobytes) return 1024 * kilobytes;
  }
  CHECK(false);
}

int Run(const std::string& path, const std::string& dtype, int num_tokens, int num_threads) {
  const auto model = Model::Load({.path = path});
  if (!model) {
    fmt::print(stderr, "{}\n", model.error().message);
    return 2;
  }
  auto plan = PlanCache((*model)->config(), {.kv_cache_dtype = dtype, .max_model_len = num_tokens},
                        {.usable_bytes = uint64_t{1} << 40});
  if (!plan) {
    fmt::print(stderr, "{}\n", plan.error().message);
    return 2;
  }
  auto runner = ModelRunner::Create(
      *model,
      {.cache = plan->config, .num_threads = num_threads, .max_context = plan->max_model_len});
  CHECK(runner.has_value());
  const auto weights = static_cast<double>((*model)->weight_bytes());
  const SequenceId id = *(*runner)->cache().AddSequence();
  const std::vector<int32_t> tokens(kStepTokens, 1000);
  fmt::print("{:>8} {:>14} {:>16} {:>16}\n", "tokens", "resident, MB", "bytes per token",
             "blocks say");
  double last_bytes = 0;
  int last_tokens = 0;
  for (int held = 0; held < num_tokens;) {
    const auto count = static_cast<size_t>(std::min(kStepTokens, num_tokens - held));
    CHECK((*runner)->cache().AllocateSlots(id, static_cast<int>(count)));
    const StepInput input = {.sequence = id, .tokens = std::span(tokens).first(count)};
    (*runner)->Execute({&input, 1});
    held = (*runner)->cache().NumTokens(id);
    if (held % kTokensPerLine != 0 && held != num_tokens) continue;
    const double bytes = StatusBytes("VmRSS:") - weights;
    fmt::print("{:>8} {:>14.1f} {:>16.0f} {:>16.0f}\n", held, bytes * 1e-6,
               (bytes - last_bytes) / (held - last_tokens), plan->bytes_per_token);
    std::fflush(stdout);
    last_bytes = bytes;
    last_tokens = held;
  }
  fmt::print("{}: peak without weights {:.1f} MB, weights {:.1f} MB\n", dtype,
             (StatusBytes("VmHWM:") - weights) * 1e-6, weights * 1e-6);
  return 0;
}

}  // namespace
}  // namespace turboquant

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    fmt::print(stderr, "usage: memory_growth MODEL.gguf KV_CACHE_DTYPE [TOKENS] [THREADS]\n");
    return 2;
  }
  return turboquant::Run(argv[1], argv[2], argc > 3 ? std::max(1, std::atoi(argv[3])) : 30000,
                         argc > 4 ? std::max(1, std::atoi(argv[4])) : 2);
}
