// Seeds of a stress test: fixed ones, and a fresh one per run so that time finds what the fixed
// ones do not. They are printed; TURBOQUANT_STRESS_SEED=N runs that one only.
#ifndef TURBOQUANT_TESTS_STRESS_STRESS_SEED_H_
#define TURBOQUANT_TESTS_STRESS_STRESS_SEED_H_

#include <cstdint>
#include <cstdlib>
#include <random>
#include <vector>

namespace turboquant {

inline std::vector<uint64_t> StressSeeds() {
  if (const char* seed = std::getenv("TURBOQUANT_STRESS_SEED"); seed != nullptr) {
    return {std::strtoull(seed, nullptr, 10)};
  }
  return {1, 2, std::random_device{}()};
}

}  // namespace turboquant

#endif  // TURBOQUANT_TESTS_STRESS_STRESS_SEED_H_
