#include "engine/thread_governor.h"

#include <algorithm>

#include "base/check.h"

namespace turboquant {

ThreadGovernor::ThreadGovernor(int max_threads) : max_threads_(max_threads), chosen_(max_threads) {
  CHECK_GE(max_threads, 1);
}

void ThreadGovernor::Report(const StepTiming& step) {
  until_trial_ -= step.wall_seconds;
  if (step.num_rows > kMostRows || max_threads_ == 1) return;
  if (step.num_rows != num_rows_) {
    num_rows_ = step.num_rows;
    trial_ = 0;
    window_ = {};
  }
  ++window_.steps;
  window_.wall_seconds += step.wall_seconds;
  window_.cpu_seconds += step.cpu_seconds;
  // A trial that has taken the time of its steps already has lost.
  const bool hopeless = trial_ != 0 && window_.wall_seconds > kStepsToJudge * rival_;
  if (window_.steps < kStepsToJudge && !hopeless) return;
  if (trial_ != 0) {
    EndTrial();
  } else {
    Judge();
  }
  window_ = {};
}

void ThreadGovernor::BeginTrial(int num_threads) {
  rival_ = window_.SecondsPerStep();
  trial_ = num_threads;
}

void ThreadGovernor::EndTrial() {
  const bool fewer = trial_ < chosen_;
  const bool won = window_.SecondsPerStep() < (fewer ? kFewerMustWin : 1.0) * rival_;
  pause_ = won ? kFirstPause : std::min(2 * pause_, kLongestPause);
  if (won) chosen_ = trial_;
  trial_ = 0;
  until_trial_ = pause_;
}

void ThreadGovernor::Judge() {
  if (until_trial_ > 0) return;
  const bool starved = window_.cpu_seconds < kLeastUse * window_.wall_seconds * chosen_;
  if (chosen_ > 1 && starved) {
    BeginTrial(chosen_ - 1);
  } else if (chosen_ < max_threads_) {
    BeginTrial(chosen_ + 1);
  }
}

}  // namespace turboquant
