#include "planner/health.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace turboquant {
namespace {

namespace fs = std::filesystem;

// A machine made of files.
class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / ("health_test_root" + std::to_string(getpid()));
    fs::remove_all(root_);
    Write("/proc/meminfo",
          "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n"
          "SwapTotal: 4000000 kB\nSwapFree: 4000000 kB\n");
    Write("/proc/self/status", "Cpus_allowed_list:\t0-3\nRssAnon:\t1000 kB\n");
    Write("/proc/self/cgroup", "0::/unit\n");
    Write("/proc/loadavg", "0.10 0.10 0.10 1/100 1\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((root_.string() + path).substr(0, (root_.string() + path).rfind('/')));
    std::ofstream(root_.string() + path) << text;
  }
  std::string root() const { return root_.string(); }

 private:
  fs::path root_;
};

#define EXPECT_HAS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << text

TEST_F(FakeRoot, MemoryIsFine) {
  const HealthCheck check = CheckMemory(root());
  EXPECT_EQ(check.health, Health::kOk) << check.found;
}

TEST_F(FakeRoot, ACgroupBoundsMemory) {
  Write("/sys/fs/cgroup/unit/memory.max", "3000000000\n");
  Write("/sys/fs/cgroup/unit/memory.current", "1000000000\n");
  const HealthCheck check = CheckMemory(root());
  EXPECT_EQ(check.health, Health::kNotice);
  EXPECT_HAS(check.found, "cgroup");
  EXPECT_HAS(check.advice, "memory.max");
}

TEST_F(FakeRoot, LittleMemoryAndSwap) {
  Write("/proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 500000 kB\n");
  EXPECT_EQ(CheckMemory(root()).health, Health::kWarning);
  Write("/proc/meminfo",
        "MemTotal: 16000000 kB\nMemAvailable: 8000000 kB\n"
        "SwapTotal: 4000000 kB\nSwapFree: 1000000 kB\n");
  EXPECT_HAS(CheckMemory(root()).found, "swapped out");
}

TEST_F(FakeRoot, StrictOvercommit) {
  Write("/proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(CheckOvercommit(root()).health, Health::kWarning);
  Write("/proc/sys/vm/overcommit_memory", "0\n");
  EXPECT_EQ(CheckOvercommit(root()).health, Health::kOk);
}

TEST_F(FakeRoot, HugePages) {
  const char* const path = "/sys/kernel/mm/transparent_hugepage/enabled";
  EXPECT_EQ(CheckHugePages(root()).health, Health::kOk);
  Write(path, "[always] madvise never\n");
  EXPECT_EQ(CheckHugePages(root()).health, Health::kOk);
  Write(path, "always madvise [never]\n");
  EXPECT_EQ(CheckHugePages(root()).health, Health::kNotice);
}

TEST_F(FakeRoot, Numa) {
  Write("/sys/devices/system/node/node0/cpulist", "0-1\n");
  Write("/sys/devices/system/node/online", "0\n");
  EXPECT_EQ(CheckNuma(root()).health, Health::kOk);
  Write("/sys/devices/system/node/node1/cpulist", "2-3\n");
  EXPECT_EQ(CheckNuma(root()).health, Health::kWarning);
}

TEST_F(FakeRoot, Threads) {
  EXPECT_EQ(CheckThreads(4, root()).health, Health::kOk);
  EXPECT_HAS(CheckThreads(5, root()).advice, "-t 4");
  Write("/proc/loadavg", "9.00 1.00 1.00 1/100 1\n");
  EXPECT_HAS(CheckThreads(0, root()).found, "load 9.0");
}

TEST(Health, AModelThatIsNotThere) {
  const HealthCheck check = CheckModelFile("/no/such/model.gguf");
  EXPECT_EQ(check.health, Health::kFailure);
  EXPECT_HAS(check.advice, "-m");
}

}  // namespace
}  // namespace turboquant
