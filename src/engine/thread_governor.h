// How many of its threads a step uses. A step has hundreds of barriers; where another process takes
// a core, each waits for the thread that lost it, and one thread fewer is faster. Whether it is, is
// measured: a trial of a few steps decides.
//
// A pure state machine over what it is told: no clock, no system calls, one thread.
#ifndef TURBOQUANT_ENGINE_THREAD_GOVERNOR_H_
#define TURBOQUANT_ENGINE_THREAD_GOVERNOR_H_

namespace turboquant {

struct StepTiming {
  int num_rows = 0;
  double wall_seconds = 0;
  double cpu_seconds = 0;  // of all threads of the process
};

class ThreadGovernor {
 public:
  explicit ThreadGovernor(int max_threads);

  // Of the next step, 1 .. max_threads.
  int num_threads() const { return trial_ != 0 ? trial_ : chosen_; }
  // The step that ran with num_threads(). Steps are compared with steps of as many rows only, and
  // those of more than kMostRows, long and with few barriers for their work, count for nothing.
  void Report(const StepTiming& step);

  static constexpr int kMostRows = 16;
  static constexpr int kStepsToJudge = 4;
  // Threads that have their cores use them: below this share of wall time x threads they did not.
  static constexpr double kLeastUse = 0.8;
  // A trial with fewer threads has to be that much faster, one with more only as fast.
  static constexpr double kFewerMustWin = 0.9;
  // Seconds until a number of threads that lost its trial is tried again: doubled by every loss.
  static constexpr double kFirstPause = 0.25, kLongestPause = 8;

 private:
  // What a number of threads has shown since it was chosen.
  struct Window {
    int steps = 0;
    double wall_seconds = 0, cpu_seconds = 0;
    double SecondsPerStep() const { return wall_seconds / steps; }
  };

  void BeginTrial(int num_threads);
  void EndTrial();
  void Judge();

  const int max_threads_;
  int chosen_;
  int trial_ = 0;  // 0 = none
  int num_rows_ = 0;
  Window window_;     // of num_threads()
  double rival_ = 0;  // seconds per step of the chosen number when the trial began
  double pause_ = kFirstPause;
  double until_trial_ = 0;  // seconds
};

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_THREAD_GOVERNOR_H_
