#include "planner/host.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace turboquant {
namespace {

// A file of /proc or /sys, which has no size beforehand; one that is not there reads as empty.
std::string ReadOrEmpty(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::optional<int64_t> Number(std::string_view text) {
  text = Trim(text);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// Value of "key value" or "Key:   value kB" in one of the lines.
std::optional<int64_t> Field(std::string_view text, std::string_view key) {
  for (std::string_view line : Split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.starts_with(':')) line.remove_prefix(1);
    if (line.starts_with(' ') || line.starts_with('\t')) return Number(line);
  }
  return std::nullopt;
}

// Path of this process in the hierarchy of one controller ("" is version 2).
std::optional<std::string> CgroupPath(std::string_view proc_cgroup, std::string_view controller) {
  for (const std::string_view line : Split(proc_cgroup, '\n')) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::vector<std::string_view> names = Split(controllers, ',');
    const bool found = controller.empty() ? controllers.empty()
                                          : std::ranges::find(names, controller) != names.end();
    if (found) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

// The folder of the process's cgroup and those above it, up to the mount. In a container the path
// may be one of the host's that does not exist here: only the folders that do count.
std::vector<std::string> CgroupFolders(const std::string& mount, std::string path) {
  std::vector<std::string> folders;
  while (path.size() > 1) {
    folders.push_back(mount + path);
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  folders.push_back(mount);
  return folders;
}

struct CgroupFiles {
  const char *mount, *controller;
  const char *limit, *usage;
  const char *inactive_file,
      *active_file;  // in memory.stat: page cache that the kernel gives back under pressure
};
constexpr CgroupFiles kMemoryV2 = {"/sys/fs/cgroup", "",           "/memory.max", "/memory.current",
                                   "inactive_file",  "active_file"};
constexpr CgroupFiles kMemoryV1 = {"/sys/fs/cgroup/memory",  "memory",
                                   "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                   "total_inactive_file",    "total_active_file"};

// What the cgroup limits above this process leave; nothing where there is no limit.
std::optional<int64_t> CgroupAvailable(const std::string& root, const CgroupFiles& files) {
  const auto path = CgroupPath(ReadOrEmpty(root + "/proc/self/cgroup"), files.controller);
  if (!path) return std::nullopt;
  std::optional<int64_t> least;
  for (const std::string& folder : CgroupFolders(root + files.mount, *path)) {
    const std::optional<int64_t> limit =
        Number(ReadOrEmpty(folder + files.limit));  // "max" is no number
    const std::optional<int64_t> usage = Number(ReadOrEmpty(folder + files.usage));
    if (!limit || !usage) continue;
    const std::string stat = ReadOrEmpty(folder + "/memory.stat");
    const int64_t cached =
        Field(stat, files.inactive_file).value_or(0) + Field(stat, files.active_file).value_or(0);
    const int64_t available = std::max<int64_t>(*limit - *usage + cached, 0);
    least = least ? std::min(*least, available) : available;
  }
  return least;
}

// CPUs of "0-3,8,10-11".
std::vector<int64_t> ParseCpuList(std::string_view text) {
  std::vector<int64_t> cpus;
  for (const std::string_view range : Split(Trim(text), ',')) {
    const size_t dash = range.find('-');
    const std::optional<int64_t> first = Number(range.substr(0, dash));
    const std::optional<int64_t> last =
        dash == std::string_view::npos ? first : Number(range.substr(dash + 1));
    if (!first || !last) continue;
    for (int64_t cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

// CPUs' worth of time that one cgroup folder allows.
std::optional<int64_t> CpuQuota(const std::string& folder) {
  std::optional<int64_t> quota = Number(ReadOrEmpty(folder + "/cpu.cfs_quota_us"));  // -1 = none
  std::optional<int64_t> period = Number(ReadOrEmpty(folder + "/cpu.cfs_period_us"));
  const std::string v2 = ReadOrEmpty(folder + "/cpu.max");  // "max 100000"
  if (const std::vector<std::string_view> parts = Split(v2, ' '); parts.size() == 2) {
    quota = Number(parts[0]);
    period = Number(parts[1]);
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return (*quota + *period - 1) / *period;
}

}  // namespace

Result<uint64_t> UsableMemoryBytes(const std::string& root) {
  const std::string path = root + "/proc/meminfo";
  const std::optional<int64_t> available_kib = Field(ReadOrEmpty(path), "MemAvailable");
  if (!available_kib || *available_kib < 0)
    return Fail(ErrorCode::kIo, "{}: cannot read MemAvailable", path);
  int64_t available = *available_kib * 1024;
  for (const CgroupFiles& files : {kMemoryV2, kMemoryV1}) {
    available = std::min(available, CgroupAvailable(root, files).value_or(available));
  }
  const int64_t own_kib = Field(ReadOrEmpty(root + "/proc/self/status"), "RssAnon").value_or(0);
  return static_cast<uint64_t>(available + own_kib * 1024);
}

Result<uint64_t> ResidentBytes(const std::string& root) {
  const std::string path = root + "/proc/self/status";
  const std::optional<int64_t> kib = Field(ReadOrEmpty(path), "VmRSS");
  if (!kib || *kib < 0) return Fail(ErrorCode::kIo, "{}: cannot read VmRSS", path);
  return static_cast<uint64_t>(*kib) * 1024;
}

int UsablePhysicalCores(const std::string& root) {
  std::set<std::string> cores;
  const std::string status = ReadOrEmpty(root + "/proc/self/status");
  const size_t allowed = status.find("Cpus_allowed_list:");
  if (allowed == std::string::npos) return 1;
  const std::string_view list = Split(std::string_view(status).substr(allowed), '\n')[0];
  for (const int64_t cpu : ParseCpuList(list.substr(list.find(':') + 1))) {
    const std::string siblings = ReadOrEmpty(
        root + fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    cores.insert(siblings.empty() ? fmt::format("{}", cpu) : siblings);
  }
  int64_t count = std::max<int64_t>(static_cast<int64_t>(cores.size()), 1);
  const std::string cgroup = ReadOrEmpty(root + "/proc/self/cgroup");
  for (const auto& [mount, controller] :
       {std::pair("/sys/fs/cgroup", ""), std::pair("/sys/fs/cgroup/cpu", "cpu")}) {
    const std::optional<std::string> path = CgroupPath(cgroup, controller);
    if (!path) continue;
    for (const std::string& folder : CgroupFolders(root + mount, *path)) {
      count = std::min(count, CpuQuota(folder).value_or(count));
    }
  }
  return static_cast<int>(count);
}

}  // namespace turboquant
