// Threads that work on one thing together, and its time. Between runs they sleep, so that whoever
// else is measured has the cores.
#ifndef TURBOQUANT_BENCH_ATTENTION_TEAM_H_
#define TURBOQUANT_BENCH_ATTENTION_TEAM_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

namespace turboquant::bench {

class Team {
 public:
  explicit Team(int num_threads) : num_threads_(num_threads) {
    for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { Serve(i); });
  }
  ~Team() {
    work_ = nullptr;
    Wake();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return num_threads_; }

  // Runs work(ith) on all threads; seconds from the moment when all have begun until all are done.
  double Time(const std::function<void(int)>& work) {
    work_ = &work;
    Wake();
    Barrier();
    const auto start = std::chrono::steady_clock::now();
    work(0);
    Barrier();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Waits for all threads of the team, as an inference loop does between operations.
  void Barrier() {
    const int round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spins = 0; round_.load(std::memory_order_acquire) == round; ++spins) {
      if (spins > kSpinsBeforeYield) std::this_thread::yield();
    }
  }

 private:
  static constexpr int kSpinsBeforeYield = 2000;

  void Wake() {
    jobs_.fetch_add(1, std::memory_order_release);
    jobs_.notify_all();
  }
  void Serve(int ith) {
    for (int seen = 0;; ++seen) {
      jobs_.wait(seen, std::memory_order_acquire);
      if (work_ == nullptr) return;
      Barrier();
      (*work_)(ith);
      Barrier();
    }
  }

  const int num_threads_;
  const std::function<void(int)>* work_ = nullptr;
  alignas(64) std::atomic<int> jobs_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<int> round_{0};
  std::vector<std::jthread> threads_;  // last: joined before the rest goes
};

}  // namespace turboquant::bench

#endif  // TURBOQUANT_BENCH_ATTENTION_TEAM_H_
