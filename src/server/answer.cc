#include "server/answer.h"

namespace turboquant::server {

std::string Answer::FirstEvents() const {
  return head_.endpoint == Endpoint::kChat ? ServerSentEvent(RoleEvent(head_)) : "";
}

std::string Answer::Add(const RequestOutput& output) {
  if (output.finish_reason) last_ = output;
  if (!stream_) {
    text_ += output.text;
    return {};
  }
  std::string events;
  if (!output.text.empty()) events = ServerSentEvent(TextEvent(head_, output.text, {}));
  if (output.finish_reason) events += LastEvents();
  return events;
}

std::optional<ApiError> Answer::Fault() const {
  if (last_->finish_reason == FinishReason::kError) {
    return ApiError{
        .status = 500, .message = last_->error, .code = "internal_error", .type = "server_error"};
  }
  if (last_->finish_reason == FinishReason::kCancelled) {
    return Overloaded("the server is shutting down; the answer is not complete");
  }
  return std::nullopt;
}

std::string Answer::LastEvents() const {
  if (const auto fault = Fault()) return ServerSentEvent(fault->ToJson());
  std::string events = ServerSentEvent(TextEvent(head_, "", last_->finish_reason));
  if (include_usage_) events += ServerSentEvent(UsageEvent(head_, last_->stats));
  return events + "data: [DONE]\n\n";
}

HttpReply Answer::Whole() const {
  if (const auto fault = Fault()) return ErrorReply(*fault);
  return JsonReply(AnswerJson(head_, text_, *last_));
}

}  // namespace turboquant::server
