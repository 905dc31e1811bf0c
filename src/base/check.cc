#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace turboquant::internal {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, condition);
  std::fflush(stderr);
  std::abort();
}

void CheckOpFailed(const char* file, int line, const char* condition, const std::string& left,
                   const std::string& right) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s (%s and %s)\n", file, line, condition, left.c_str(),
               right.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace turboquant::internal
