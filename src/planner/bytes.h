// Sums and products of sizes that cannot wrap: what does not fit 64 bits stays at kTooManyBytes,
// which no machine has, so one check at the end of a calculation is enough.
#ifndef TURBOQUANT_PLANNER_BYTES_H_
#define TURBOQUANT_PLANNER_BYTES_H_

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace turboquant {

inline constexpr uint64_t kTooManyBytes = std::numeric_limits<uint64_t>::max();

constexpr uint64_t SumOf(std::initializer_list<uint64_t> terms) {
  uint64_t sum = 0;
  for (const uint64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) return kTooManyBytes;
  }
  return sum;
}

constexpr uint64_t ProductOf(std::initializer_list<uint64_t> factors) {
  uint64_t product = 1;
  for (const uint64_t factor : factors) {
    if (factor == 0) return 0;
  }
  for (const uint64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return kTooManyBytes;
  }
  return product;
}

constexpr uint64_t CeilDiv(uint64_t value, uint64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return ProductOf({CeilDiv(value, multiple), multiple});
}

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_BYTES_H_
