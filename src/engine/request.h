// What a caller asks of the engine, and what comes back per step.
#ifndef TURBOQUANT_ENGINE_REQUEST_H_
#define TURBOQUANT_ENGINE_REQUEST_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/sampler.h"

namespace turboquant {

struct RequestId {
  int64_t value = -1;
  auto operator<=>(const RequestId&) const = default;
};

struct Request {
  std::vector<int32_t> prompt = {};  // at least one token, shorter than the engine's max_model_len
  SamplingParams sampling = {};
  int max_tokens = 0;  // tokens to generate; 0 = until the context is full
  std::vector<std::string> stop =
      {};  // generation ends before the first of these; it is not part of the text
  bool ignore_end_of_generation = false;  // go on over the model's end tokens (benchmarks)

  // A conversation: with keep_cache the cache of this request outlives it until a later request
  // names it in continue_from, Engine::Release is called, or the blocks are needed by others. A
  // prompt that begins with what that cache holds (the prompt and all that was generated but the
  // last token) and has more then computes only the rest; any other prompt is computed in full. It
  // is a matter of speed only.
  bool keep_cache = false;
  std::optional<RequestId> continue_from = {};
};

enum class FinishReason : uint8_t {
  kStop,       // an end token of the model, or a stop string
  kLength,     // max_tokens, or the context is full
  kCancelled,  // Cancel, or the stop flag
  kError,      // RequestOutput::error says why
};
std::string_view Name(FinishReason reason);  // "stop", "length", "cancelled", "error"

// Figures of one request, final when it has finished. Seconds of the monotonic clock.
struct RequestStats {
  int prompt_tokens = 0;
  int reused_tokens = 0;       // of the prompt, taken from continue_from's cache
  int generated_tokens = 0;    // end token included
  int preemptions = 0;         // times its blocks were taken and its tokens computed again
  double ttft_seconds = 0;     // AddRequest to the first generated token
  double prefill_seconds = 0;  // first step to the first generated token
  double decode_seconds = 0;   // first to last generated token
  int kv_tokens = 0;           // tokens in the cache at the end
  size_t kv_bytes = 0;         // held for them: closed blocks, tail and sinks, padding included
  size_t kv_bytes_f16 = 0;     // the same tokens as plain f16, nothing else
  double bits_per_value = 0;   // of closed blocks, mean over layers and sides
  double effective_bits = 0;   // 8 * kv_bytes / stored values
  double PrefillTokensPerSecond() const;  // 0 where no time passed
  double DecodeTokensPerSecond() const;   // over the tokens after the first
};

// What one step did for one request.
struct RequestOutput {
  RequestId id = {};
  std::optional<int32_t> token =
      {};  // generated in this step; empty when it only ended (cancelled, error)
  // Text that is certain now: whole UTF-8 characters, minus what may yet become a stop string.
  std::string text = {};
  std::optional<FinishReason> finish_reason = {};  // set in the last output of a request
  std::string error = {};                          // kError only
  RequestStats stats = {};                         // set with finish_reason
};

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_REQUEST_H_
