#include "engine/engine_service.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace turboquant {

EngineService::EngineService(std::unique_ptr<Engine> engine, EngineServiceOptions options)
    : engine_(std::move(engine)),
      max_requests_(engine_->plan().max_num_seqs + options.max_queued_requests),
      stats_(engine_->stats()),
      thread_([this] { Run(); }) {}

EngineService::~EngineService() { Stop(); }

Result<std::optional<RequestId>> EngineService::Submit(Request request, OnOutput on_output) {
  TQ_RETURN_IF_ERROR(engine_->CheckRequest(request));
  std::optional<RequestId> id;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || num_requests_ >= max_requests_) return id;
    ++num_requests_;
    id = RequestId{next_id_++};
    submissions_.push_back({*id, std::move(request), std::move(on_output)});
  }
  wake_.notify_one();
  return id;
}

void EngineService::Cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    cancellations_.push_back(id);
  }
  wake_.notify_one();
}

void EngineService::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

EngineStats EngineService::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.num_waiting += static_cast<int>(submissions_.size());
  return stats;
}

int EngineService::num_requests() const {
  const std::lock_guard lock(mutex_);
  return num_requests_;
}

void EngineService::Run() {
  while (TakeOver()) {
    for (RequestOutput& output : engine_->Step()) Deliver(std::move(output));
    const std::lock_guard lock(mutex_);
    stats_ = engine_->stats();
  }
}

// Waits until there is something to do and does what callers asked for. False: all is done and the
// service has been stopped.
bool EngineService::TakeOver() {
  std::vector<Submission> submissions;
  std::vector<RequestId> cancellations;
  bool stopping = false;
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] {
      return stopping_ || !submissions_.empty() || !cancellations_.empty() || engine_->HasWork();
    });
    submissions.swap(submissions_);
    cancellations.swap(cancellations_);
    stopping = stopping_;
  }
  for (Submission& submission : submissions) Add(std::move(submission));
  for (const RequestId id : cancellations) CancelActive(id);
  if (stopping) {
    for (const auto& item : active_) engine_->Cancel(item.first);
  }
  return !stopping || engine_->HasWork();
}

void EngineService::Add(Submission submission) {
  submission.request.keep_cache = true;
  submission.request.continue_from = engine_->FindContinuation(submission.request.prompt);
  const Result<RequestId> engine_id = engine_->AddRequest(std::move(submission.request));
  CHECK(engine_id);  // Submit has checked the request
  active_.emplace(*engine_id, Active{submission.id, std::move(submission.on_output)});
}

void EngineService::CancelActive(RequestId id) {
  const auto it =
      std::ranges::find_if(active_, [id](const auto& item) { return item.second.id == id; });
  if (it != active_.end()) engine_->Cancel(it->first);
}

void EngineService::Deliver(RequestOutput output) {
  const auto it = active_.find(output.id);
  CHECK(it != active_.end());
  output.id = it->second.id;
  const OnOutput on_output = it->second.on_output;
  if (output.finish_reason) {
    active_.erase(it);
    const std::lock_guard lock(mutex_);
    --num_requests_;
  }
  on_output(std::move(output));
}

}  // namespace turboquant
