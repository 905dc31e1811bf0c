// The sizes that llama.cpp logs for its own cache against the ledger's.
#include <llama.h>

#include <memory>
#include <regex>

#include "planner_test_util.h"

namespace turboquant {
namespace {

std::string* log_text = nullptr;
void Collect(ggml_log_level, const char* text, void*) {
  if (log_text != nullptr) *log_text += text;
}

// "llama_kv_cache: size =   45.00 MiB (  2048 cells,  30 layers, ...": MiB with two digits.
double LoggedMiB(llama_model* model, int context, int num_seqs, ggml_type k, ggml_type v) {
  std::string text;
  log_text = &text;
  llama_log_set(Collect, nullptr);  // again: loading a model of ours has set it too
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(context * num_seqs);
  params.n_seq_max = static_cast<uint32_t>(num_seqs);
  params.type_k = k;
  params.type_v = v;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  const std::unique_ptr<llama_context, decltype(&llama_free)> made(
      llama_init_from_model(model, params), llama_free);
  log_text = nullptr;
  EXPECT_NE(made, nullptr);
  std::smatch match;
  const std::regex line(R"(llama_kv_cache: size = *([0-9.]+) MiB)");
  EXPECT_TRUE(std::regex_search(text, match, line)) << text;
  return match.empty() ? 0 : std::stod(match[1]);
}

TEST(PlannerLlamaLog, SizesAgree) {
  const std::unique_ptr<llama_model, decltype(&llama_model_free)> model(
      llama_model_load_from_file(TURBOQUANT_DEFAULT_MODEL, llama_model_default_params()),
      llama_model_free);
  ASSERT_NE(model, nullptr);
  const auto source = LedgerSource::Open(TURBOQUANT_DEFAULT_MODEL, {});
  ASSERT_TRUE(source) << source.error().message;
  struct Row {
    const char* format;
    ggml_type k, v;
  };
  for (const Row& row : {Row{"f16", GGML_TYPE_F16, GGML_TYPE_F16},
                         {"q8_0", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0},
                         {"q8_0/q4_0", GGML_TYPE_Q8_0, GGML_TYPE_Q4_0},
                         {"q5_1/iq4_nl", GGML_TYPE_Q5_1, GGML_TYPE_IQ4_NL}}) {
    for (const auto& [context, num_seqs] : {std::pair(2048, 1), {1000, 1}, {700, 3}}) {
      const auto ledger = source->Make(Options({.engine = EngineKind::kLlamaCpp,
                                                .format = row.format,
                                                .context = context,
                                                .num_seqs = num_seqs}));
      ASSERT_TRUE(ledger) << ledger.error().message;
      const double logged = LoggedMiB(model.get(), context, num_seqs, row.k, row.v);
      EXPECT_NEAR(static_cast<double>(ledger->cache.total()) / static_cast<double>(kMiB), logged,
                  0.005 + 1e-6 * logged)
          << row.format << " " << context << " x " << num_seqs;
    }
  }
}

}  // namespace
}  // namespace turboquant
