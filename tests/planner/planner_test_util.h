// Ledgers of the config files in this folder, and the shorthand that the tests of the planner
// share.
#ifndef TURBOQUANT_TESTS_PLANNER_PLANNER_TEST_UTIL_H_
#define TURBOQUANT_TESTS_PLANNER_PLANNER_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <string>

#include "planner/answers.h"
#include "planner/hf_config.h"
#include "planner/ledger.h"

namespace turboquant {

inline constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

inline std::string ConfigPath(const std::string& name) {
  return std::string(TURBOQUANT_SOURCE_DIR) + "/tests/planner/configs/" + name + ".json";
}

inline LedgerSource Source(const std::string& name, int max_batch_tokens = 512) {
  auto source = LedgerSource::Open(ConfigPath(name),
                                   {.max_batch_tokens = max_batch_tokens, .num_threads = 1});
  EXPECT_TRUE(source) << source.error().message;
  return std::move(*source);
}

struct Asked {
  EngineKind engine = EngineKind::kTurboquant;
  std::string format = "f16";
  int context = 4096;
  int num_seqs = 1;
  uint64_t memory = uint64_t{1} << 50;
  int ranks = 1;
};

inline LedgerOptions Options(const Asked& asked) {
  LedgerOptions options;
  options.engine = asked.engine;
  options.cache.kv_cache_dtype = asked.format;
  options.cache.block_size = 0;
  options.cache.max_model_len = asked.context;
  options.cache.max_num_seqs = asked.num_seqs;
  options.tensor_parallel_size = asked.ranks;
  options.usable_bytes = asked.memory;
  return options;
}

inline Ledger Make(const std::string& name, const Asked& asked) {
  auto ledger = Source(name).Make(Options(asked));
  EXPECT_TRUE(ledger) << ledger.error().message;
  return std::move(*ledger);
}

inline Error MakeError(const std::string& name, const Asked& asked) {
  const auto ledger = Source(name).Make(Options(asked));
  EXPECT_FALSE(ledger);
  return ledger ? Error{} : ledger.error();
}

inline double BytesPerToken(const std::string& name, EngineKind engine, const std::string& format) {
  return Make(name, {.engine = engine, .format = format}).profile->BytesPerToken();
}

}  // namespace turboquant

#endif  // TURBOQUANT_TESTS_PLANNER_PLANNER_TEST_UTIL_H_
