#include "planner/host.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace turboquant {
namespace {

namespace fs = std::filesystem;

// A made-up /proc and /sys.
class FakeHost : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ =
        fs::path(::testing::TempDir()) /
        (std::string("host_") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    Write(
        "/proc/meminfo",
        "MemTotal:       16000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n");
    Write("/proc/self/status",
          "Name:\tt\nRssAnon:\t  500000 kB\nCpus_allowed_list:\t0-3\nMems_allowed_list:\t0\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    const fs::path full = root_.string() + path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  uint64_t Usable() {
    const auto bytes = UsableMemoryBytes(root_.string());
    EXPECT_TRUE(bytes) << bytes.error().message;
    return bytes.value_or(0);
  }
  int Cores() { return UsablePhysicalCores(root_.string()); }

  fs::path root_;
};

constexpr uint64_t kKiB = 1024;

TEST_F(FakeHost, WithoutLimitItIsWhatIsAvailableAndHeld) { EXPECT_EQ(Usable(), 8500000 * kKiB); }

TEST_F(FakeHost, Version2LimitOfAParentCounts) {
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "1000\n");
  Write("/sys/fs/cgroup/a/memory.max", "3000000000\n");
  Write("/sys/fs/cgroup/a/memory.current", "2500000000\n");
  Write("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 300000000\nactive_file 100000000\n");
  EXPECT_EQ(Usable(), 3000000000u - 2500000000u + 400000000u + 500000 * kKiB);
}

TEST_F(FakeHost, LargeLimitChangesNothing) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "99000000000000\n");
  Write("/sys/fs/cgroup/memory.current", "0\n");
  EXPECT_EQ(Usable(), 8500000 * kKiB);
}

// In a container the path is the host's and only the mount itself is visible.
TEST_F(FakeHost, Version1LimitIsFoundAtTheMount) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpuset,memory:/docker/0123\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000001\n");
  EXPECT_EQ(Usable(), 500000 * kKiB);
}

TEST_F(FakeHost, UnreadableMeminfoIsAnError) {
  Write("/proc/meminfo", "nothing\n");
  const auto bytes = UsableMemoryBytes(root_.string());
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, ErrorCode::kIo);
}

TEST_F(FakeHost, CountsCoresAndNotTheirThreads) {
  for (const int cpu : {0, 1, 2, 3}) {
    Write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
          cpu % 2 == 0 ? "0,2\n" : "1,3\n");
  }
  EXPECT_EQ(Cores(), 2);
}

TEST_F(FakeHost, WithoutTopologyEveryCpuIsACore) { EXPECT_EQ(Cores(), 4); }

TEST_F(FakeHost, QuotaLimitsCores) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(Cores(), 4);
  Write("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(Cores(), 3);
  Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(Cores(), 1);
}

TEST_F(FakeHost, Version1QuotaLimitsCores) {
  Write("/proc/self/cgroup", "2:cpu,cpuacct:/\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(Cores(), 4);
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(Cores(), 2);
}

TEST(Host, ThisMachineHasMemoryAndCores) {
  const auto bytes = UsableMemoryBytes();
  ASSERT_TRUE(bytes) << bytes.error().message;
  EXPECT_GT(*bytes, 1u << 20);
  EXPECT_GE(UsablePhysicalCores(), 1);
}

}  // namespace
}  // namespace turboquant
