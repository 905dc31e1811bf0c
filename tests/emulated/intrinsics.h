// Operations that immintrin.h in this folder emulates and that the CPU can do itself with AVX2, FMA
// and F16C: the same operation over 16 lanes, once emulated (emulated_ops.cc) and once in two
// halves of real instructions (native_ops.cc).
#ifndef TURBOQUANT_TESTS_EMULATED_INTRINSICS_H_
#define TURBOQUANT_TESTS_EMULATED_INTRINSICS_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace turboquant {

using Lanes = std::array<uint32_t, 16>;
struct IntrinsicOp {
  std::string_view name;
  bool float_lanes;  // results are f32: any NaN equals any NaN
  Lanes (*run)(const Lanes& a, const Lanes& b, const Lanes& c);
};
// The same names in the same order.
std::span<const IntrinsicOp> EmulatedOps();
std::span<const IntrinsicOp> NativeOps();

}  // namespace turboquant

#endif  // TURBOQUANT_TESTS_EMULATED_INTRINSICS_H_
