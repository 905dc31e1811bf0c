// What this process may use of the machine: memory (cgroup-aware) and cores. Linux.
#ifndef TURBOQUANT_PLANNER_HOST_H_
#define TURBOQUANT_PLANNER_HOST_H_

#include <cstdint>
#include <string>

#include "base/error.h"

namespace turboquant {

// Bytes that this process could hold in all: MemAvailable plus its own anonymous memory, or what
// the tightest memory limit of its cgroups (v2 or v1) leaves, where that is less. `root` is
// prepended to /proc and /sys paths (tests). kIo where /proc/meminfo cannot be read.
Result<uint64_t> UsableMemoryBytes(const std::string& root = "");

// Memory that this process holds now: its own pages and those of files that it has mapped. kIo
// where /proc/self/status cannot be read.
Result<uint64_t> ResidentBytes(const std::string& root = "");

// Physical cores among the CPUs that the scheduler may give this process, at most its cgroup's CPU
// quota; at least 1.
int UsablePhysicalCores(const std::string& root = "");

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_HOST_H_
