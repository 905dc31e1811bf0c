// What of the machine and the model file helps or hurts, and what to do about it. Linux.
#ifndef TURBOQUANT_PLANNER_HEALTH_H_
#define TURBOQUANT_PLANNER_HEALTH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace turboquant {

enum class Health : uint8_t {
  kOk,
  kNotice,   // works; worth knowing
  kWarning,  // works, but slower or with less than it could
  kFailure,  // something asked for will not work
};
std::string_view Name(Health health);  // "ok", "notice", "warning", "failure"

struct HealthCheck {
  std::string name;
  Health health = Health::kOk;
  std::string found;   // one line
  std::string advice;  // a command or a flag; empty where nothing is to be done
};

// `root` is prepended to /proc and /sys paths (tests).
HealthCheck CheckCpu();                                     // features, the instruction set chosen
HealthCheck CheckMemory(const std::string& root = "");      // free, and what bounds it
HealthCheck CheckOvercommit(const std::string& root = "");  // whether address space can be reserved
HealthCheck CheckHugePages(const std::string& root = "");
HealthCheck CheckNuma(const std::string& root = "");
// num_threads: asked for; 0 = none.
HealthCheck CheckThreads(int num_threads, const std::string& root = "");
HealthCheck CheckModelFile(const std::string& path);
// Whether a server could listen on 127.0.0.1:port.
HealthCheck CheckPort(int port);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_HEALTH_H_
