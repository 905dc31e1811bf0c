#include "engine/thread_governor.h"

#include <gtest/gtest.h>

#include <functional>

namespace turboquant {
namespace {

// Seconds of a step with so many threads, and the share of them that had a core.
struct Machine {
  std::function<double(int)> seconds;
  std::function<double(int)> use;
};

Machine Quiet(double work) {
  return {[work](int threads) { return work / threads; }, [](int) { return 0.98; }};
}

// One of the cores is somebody else's: a step that needs all of them waits for it.
Machine OneCoreBusy(int cores, double work) {
  return {[=](int threads) { return threads == cores ? 10 * work / threads : work / threads; },
          [=](int threads) { return threads == cores ? 0.3 : 0.98; }};
}

struct Ran {
  double seconds = 0;
  int steps_with_all = 0;
};

Ran Steps(const Machine& machine, int count, int max_threads, ThreadGovernor* governor,
          int num_rows = 1) {
  Ran run;
  for (int i = 0; i < count; ++i) {
    const int threads = governor->num_threads();
    const double wall = machine.seconds(threads);
    governor->Report({.num_rows = num_rows,
                      .wall_seconds = wall,
                      .cpu_seconds = wall * threads * machine.use(threads)});
    run.seconds += wall;
    run.steps_with_all += threads == max_threads ? 1 : 0;
  }
  return run;
}

TEST(ThreadGovernorTest, AllThreadsOnAQuietMachine) {
  ThreadGovernor governor(4);
  EXPECT_EQ(Steps(Quiet(0.02), 1000, 4, &governor).steps_with_all, 1000);
}

TEST(ThreadGovernorTest, LeavesABusyCoreAndComesBack) {
  for (const int cores : {2, 4, 16}) {
    ThreadGovernor governor(cores);
    const double fewer = 0.02 / (cores - 1);
    const Ran busy = Steps(OneCoreBusy(cores, 0.02), 1000, cores, &governor);
    EXPECT_EQ(governor.num_threads(), cores - 1);
    EXPECT_LT(busy.seconds, 1.2 * 1000 * fewer) << cores << " cores";
    const auto until_longest_pause = static_cast<int>(ThreadGovernor::kLongestPause / fewer);
    Steps(Quiet(0.02), until_longest_pause + 100, cores, &governor);
    EXPECT_EQ(governor.num_threads(), cores);
  }
}

TEST(ThreadGovernorTest, StaysWhereFewerThreadsAreNoFaster) {
  // Everybody gets half a core: two threads still do twice the work of one.
  const Machine shared = {[](int threads) { return 0.04 / threads; }, [](int) { return 0.5; }};
  ThreadGovernor governor(2);
  EXPECT_GT(Steps(shared, 1000, 2, &governor).steps_with_all, 960);
  EXPECT_EQ(governor.num_threads(), 2);
}

TEST(ThreadGovernorTest, ALossIsSeenAtOnce) {
  // A trial with the busy core would cost 4 steps of 200 ms if it ran to its end.
  ThreadGovernor governor(2);
  Steps(OneCoreBusy(2, 0.02), 100, 2, &governor);
  ASSERT_EQ(governor.num_threads(), 1);
  const Ran busy = Steps(OneCoreBusy(2, 0.04), 1000, 2, &governor);
  EXPECT_LT(busy.steps_with_all, 12);
}

TEST(ThreadGovernorTest, OnlyStepsAlikeAreCompared) {
  ThreadGovernor governor(2);
  // Long steps never change anything, however starved.
  EXPECT_EQ(
      Steps(OneCoreBusy(2, 2.0), 50, 2, &governor, ThreadGovernor::kMostRows + 1).steps_with_all,
      50);
  // Batches that change with every step leave no two to compare.
  for (int i = 0; i < 100; ++i) Steps(OneCoreBusy(2, 0.02), 1, 2, &governor, 1 + i % 8);
  EXPECT_EQ(governor.num_threads(), 2);
}

TEST(ThreadGovernorTest, OneThreadIsOneThread) {
  ThreadGovernor governor(1);
  Steps({[](int) { return 0.1; }, [](int) { return 0.2; }}, 100, 1, &governor);
  EXPECT_EQ(governor.num_threads(), 1);
}

}  // namespace
}  // namespace turboquant
