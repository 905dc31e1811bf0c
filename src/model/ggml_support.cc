#include "model/ggml_support.h"

#include <llama.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <mutex>
#include <string_view>

#include "base/check.h"

namespace turboquant {
namespace {

thread_local std::string last_error;

// They speak at "info" about every tensor and at "warn" about conventions of vocabularies: nothing
// a user can act on.
void LogLine(ggml_log_level level, const char* text, void* /*user_data*/) {
  std::string_view line(text);
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  if (line.empty()) return;
  if (level == GGML_LOG_LEVEL_ERROR) last_error = line;
  if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR)
    spdlog::debug("ggml: {}", line);
}

}  // namespace

GgmlContextPtr NewGgmlContext(size_t num_tensors, size_t extra_bytes) {
  ggml_init_params params{};
  params.mem_size = num_tensors * ggml_tensor_overhead() + extra_bytes;
  params.no_alloc = true;
  GgmlContextPtr context(ggml_init(params));
  CHECK(context != nullptr);
  return context;
}

void InitGgml() {
  static std::once_flag once;
  std::call_once(once, [] {
    setenv("GGML_NO_BACKTRACE", "1",
           /*overwrite=*/0);          // an abort would fork a debugger, which takes seconds
    llama_log_set(LogLine, nullptr);  // ggml's too
    ggml_set_abort_callback(
        [](const char* message) { spdlog::critical("ggml aborts: {}", message); });
    llama_backend_init();
  });
}

void ClearLastGgmlError() { last_error.clear(); }
std::string LastGgmlError() { return last_error; }

}  // namespace turboquant
