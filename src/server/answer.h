// One answer on its way to a client: the engine's outputs in, a document or the events of a stream
// out.
#ifndef TURBOQUANT_SERVER_ANSWER_H_
#define TURBOQUANT_SERVER_ANSWER_H_

#include <optional>
#include <string>

#include "server/http_message.h"
#include "server/openai_response.h"

namespace turboquant::server {

class Answer {
 public:
  Answer(AnswerHead head, bool stream, bool include_usage)
      : head_(std::move(head)), stream_(stream), include_usage_(include_usage) {}

  bool streams() const { return stream_; }
  // Events before the first output.
  std::string FirstEvents() const;
  // Takes an output; its events where the answer streams. A fault is an event too, and then no
  // "[DONE]" follows: clients take that for an error.
  std::string Add(const RequestOutput& output);
  // The last output has come.
  bool done() const { return last_.has_value(); }
  // What the last output says, done() only.
  const RequestOutput& last() const { return *last_; }
  // The whole answer, done() only.
  HttpReply Whole() const;

 private:
  std::optional<ApiError> Fault() const;
  std::string LastEvents() const;

  AnswerHead head_;
  bool stream_, include_usage_;
  std::string text_;
  std::optional<RequestOutput> last_;
};

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_ANSWER_H_
