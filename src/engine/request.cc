#include "engine/request.h"

namespace turboquant {

std::string_view Name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

double RequestStats::PrefillTokensPerSecond() const {
  return prefill_seconds > 0 ? (prompt_tokens - reused_tokens) / prefill_seconds : 0;
}

double RequestStats::DecodeTokensPerSecond() const {
  return decode_seconds > 0 ? (generated_tokens - 1) / decode_seconds : 0;
}

}  // namespace turboquant
