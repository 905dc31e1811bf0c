// Vector helpers of the AArch64 folders for integer formats.
//
// Headers of kernels/neonint are what neondotprod and neoni8mm have in common: each folder compiles
// them with its own flags into its own namespace, which a file names before it includes them:
//   #define TQ_FOLDER neondotprod
// So no function of one folder can stand in for the same one of the other, in which the compiler
// may have used instructions that a CPU lacks (tools/check_isa_symbols.py looks).
#ifndef TURBOQUANT_KERNELS_NEONINT_VEC_H_
#define TURBOQUANT_KERNELS_NEONINT_VEC_H_

#ifndef TQ_FOLDER
#error "define TQ_FOLDER as the folder that this is compiled for"
#endif

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

// The inner loops must be inlined with their accumulators in registers.
#define TQ_ALWAYS_INLINE inline __attribute__((always_inline))

namespace turboquant::TQ_FOLDER {

inline constexpr int kLanes = 16;      // lanes of a line: tokens of K, channels of V
inline constexpr int kLineBytes = 64;  // a lane is 4 bytes
inline constexpr int kQuarters = 4;    // vectors of four 32-bit lanes that a line fills

inline size_t Size(int n) { return static_cast<size_t>(n); }

// Four halves to floats.
inline float32x4_t LoadHalves(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONINT_VEC_H_
