#include "planner/health.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/mapped_file.h"
#include "base/text.h"
#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"
#include "model/gguf.h"
#include "model/hyperparameters.h"
#include "planner/host.h"

namespace turboquant {
namespace {

namespace fs = std::filesystem;

// Empty where there is no such file.
std::string ReadSmall(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  std::string content = text.str();
  while (!content.empty() && (content.back() == '\n' || content.back() == ' ')) content.pop_back();
  return content;
}

// Bytes of "Key:   N kB" in /proc/meminfo; 0 where it is missing.
uint64_t MemInfo(const std::string& text, std::string_view key) {
  const size_t at = text.find(std::string(key) + ":");
  if (at == std::string::npos) return 0;
  return std::strtoull(text.c_str() + at + key.size() + 1, nullptr, 10) * 1024;
}

}  // namespace

std::string_view Name(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kNotice:
      return "notice";
    case Health::kWarning:
      return "warning";
    case Health::kFailure:
      return "failure";
  }
  return "";
}

HealthCheck CheckCpu() {
  const CpuFeatures cpu = DetectCpuFeatures();
  HealthCheck check{.name = "cpu"};
  const char* forced = std::getenv("TURBOQUANT_ISA");
  const auto table = SelectKernels("");
  if (!table) {
    return {.name = "cpu",
            .health = Health::kFailure,
            .found = table.error().message,
            .advice = "unset TURBOQUANT_ISA"};
  }
  check.found = fmt::format("{}; kernels {}", cpu.ToString(), Name(table->isa));
  if (table->isa != BestIsa(cpu)) {
    check.health = Health::kWarning;
    check.found += fmt::format(", forced by TURBOQUANT_ISA={}", forced == nullptr ? "" : forced);
    check.advice = "unset TURBOQUANT_ISA";
  } else if (table->isa == Isa::kScalar) {
    check.health = Health::kWarning;
    check.advice =
        "no AVX2 is visible: plain kernels are many times slower; in a virtual machine choose the "
        "host's CPU model";
  }
  return check;
}

HealthCheck CheckMemory(const std::string& root) {
  const auto usable = UsableMemoryBytes(root);
  if (!usable) {
    return {.name = "memory",
            .health = Health::kFailure,
            .found = usable.error().message,
            .advice = "mount /proc"};
  }
  const std::string info = ReadSmall(root + "/proc/meminfo");
  const uint64_t total = MemInfo(info, "MemTotal"), available = MemInfo(info, "MemAvailable");
  const uint64_t swapped = MemInfo(info, "SwapTotal") - MemInfo(info, "SwapFree");
  HealthCheck check{.name = "memory"};
  check.found = fmt::format("{} usable of {}", FormatBytes(*usable), FormatBytes(total));
  // A cgroup's limit shows as usable well below what the machine has left.
  if (static_cast<double>(*usable) < 0.98 * static_cast<double>(available)) {
    check.health = Health::kNotice;
    check.found +=
        fmt::format(", bounded by a cgroup ({} are free beside it)", FormatBytes(available));
    check.advice = "raise the limit of the container or unit (memory.max, MemoryMax=, --memory)";
  }
  if (*usable < (uint64_t{1} << 30)) {
    check.health = Health::kWarning;
    check.advice = "turboquant plan says what fits; a smaller format or context needs less";
  } else if (swapped > (uint64_t{256} << 20)) {
    check.health = Health::kWarning;
    check.found += fmt::format(", {} swapped out", FormatBytes(swapped));
    check.advice = "pages of weights or cache that are swapped out cost seconds; free memory";
  }
  return check;
}

HealthCheck CheckOvercommit(const std::string& root) {
  HealthCheck check{.name = "address space"};
  const std::string mode = ReadSmall(root + "/proc/sys/vm/overcommit_memory");
  rlimit limit{};
  const bool limited =
      root.empty() && getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  check.found = mode.empty() ? "unknown" : fmt::format("vm.overcommit_memory = {}", mode);
  if (mode == "2") {
    check.health = Health::kWarning;
    check.advice =
        "the pool is reserved at once and used as it is needed: sysctl "
        "vm.overcommit_memory=0, or a smaller --kv-cache-memory";
  }
  if (limited) {
    check.health = Health::kWarning;
    check.found += fmt::format(", limited to {}", FormatBytes(limit.rlim_cur));
    check.advice = "ulimit -v unlimited";
  }
  return check;
}

HealthCheck CheckHugePages(const std::string& root) {
  HealthCheck check{.name = "huge pages"};
  const std::string mode = ReadSmall(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  check.found = mode.empty() ? "not offered by this kernel" : mode;
  if (mode.empty() || mode.find("[always]") != std::string::npos) return check;
  check.health = Health::kNotice;
  check.advice =
      "echo always > /sys/kernel/mm/transparent_hugepage/enabled lets large caches be read with "
      "fewer address look-ups; measure with turboquant bench";
  return check;
}

HealthCheck CheckNuma(const std::string& root) {
  HealthCheck check{.name = "numa"};
  int nodes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(root + "/sys/devices/system/node", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("node") && name.size() > 4 &&
        name.find_first_not_of("0123456789", 4) == std::string::npos)
      ++nodes;
  }
  check.found = nodes == 0 ? "not told by this system" : fmt::format("{} node(s)", nodes);
  if (nodes > 1) {
    check.health = Health::kWarning;
    check.advice =
        "numactl --interleave=all turboquant ..., or --cpunodebind=0 --membind=0 if the model and "
        "cache fit one node";
  }
  return check;
}

HealthCheck CheckThreads(int num_threads, const std::string& root) {
  const int cores = UsablePhysicalCores(root);
  HealthCheck check{.name = "threads"};
  check.found = fmt::format("{} physical core(s) usable", cores);
  const double load = std::strtod(ReadSmall(root + "/proc/loadavg").c_str(), nullptr);
  if (num_threads > cores) {
    check.health = Health::kWarning;
    check.found += fmt::format(", {} threads asked for", num_threads);
    check.advice = fmt::format("-t {}: more threads than cores wait for each other", cores);
  } else if (load > 1.5 * cores) {
    check.health = Health::kWarning;
    check.found += fmt::format(", load {:.1f}", load);
    check.advice = "other programs use the cores: stop them, or take fewer threads with -t";
  }
  return check;
}

HealthCheck CheckModelFile(const std::string& path) {
  const auto describe = [&]() -> Result<std::string> {
    TQ_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
    TQ_ASSIGN_OR_RETURN(const Gguf file, Gguf::Parse(mapped.bytes(), path));
    TQ_ASSIGN_OR_RETURN(const ModelConfig config, ReadHyperparameters(file));
    TQ_RETURN_IF_ERROR(CheckTensors(file, config));
    return fmt::format("{}: {} ({}), {}", path, config.name, config.architecture,
                       FormatBytes(mapped.bytes().size()));
  };
  const Result<std::string> found = describe();
  if (found) return {.name = "model", .found = *found};
  HealthCheck check{.name = "model", .health = Health::kFailure, .found = found.error().message};
  switch (found.error().code) {
    case ErrorCode::kNotFound:
      check.advice = "make run installs the default model; -m names another";
      break;
    case ErrorCode::kCorrupt:
      check.advice = "download the file again and compare its size and checksum";
      break;
    case ErrorCode::kUnsupported:
      check.advice = "turboquant plan --engine llama.cpp may still size it";
      break;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kIo:
    case ErrorCode::kInterrupted:
      check.advice = "check the path and its permissions";
      break;
  }
  return check;
}

HealthCheck CheckPort(int port) {
  HealthCheck check{.name = "port", .found = fmt::format("127.0.0.1:{} is free", port)};
  const int socket_fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int reuse = 1;  // a port whose last user has just gone is free
  const bool bound =
      socket_fd >= 0 &&
      ::setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse)) == 0 &&
      ::bind(socket_fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (!bound) {
    check.health = Health::kFailure;
    check.found = fmt::format("127.0.0.1:{}: {}", port, std::strerror(errno));
    check.advice =
        fmt::format("--port with another number, or find its user: ss -ltnp sport = :{}", port);
  }
  if (socket_fd >= 0) ::close(socket_fd);
  return check;
}

}  // namespace turboquant
