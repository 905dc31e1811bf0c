// Vector helpers of this folder. Only files of kernels/neondotprod include it: what the compiler
// does not inline is emitted under turboquant::neondotprod and cannot stand in for code of another
// instruction set.
#ifndef TURBOQUANT_KERNELS_NEONDOTPROD_VEC_H_
#define TURBOQUANT_KERNELS_NEONDOTPROD_VEC_H_

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

// The inner loops must be inlined with their accumulators in registers.
#define TQ_ALWAYS_INLINE inline __attribute__((always_inline))

namespace turboquant::neondotprod {

inline constexpr int kLanes = 16;      // lanes of a line: tokens of K, channels of V
inline constexpr int kLineBytes = 64;  // a lane is 4 bytes
inline constexpr int kQuarters = 4;    // vectors of four 32-bit lanes that a line fills

inline size_t Size(int n) { return static_cast<size_t>(n); }

// Four halves to floats.
inline float32x4_t LoadHalves(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

// Four bytes in every lane.
inline uint8x16_t BroadcastQuad(const void* p) {
  uint32_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return vreinterpretq_u8_u32(vdupq_n_u32(bits));
}

// acc[lane] += sum of the products of four bytes of `codes` with four factors: K meets signed
// factors (q), V unsigned ones (p), and the codes are of the same kind. Sums are modulo 2^32.
TQ_ALWAYS_INLINE int32x4_t AddDot(int32x4_t acc, uint8x16_t codes, const int8_t* factors) {
  return vdotq_s32(acc, vreinterpretq_s8_u8(codes), vreinterpretq_s8_u8(BroadcastQuad(factors)));
}
TQ_ALWAYS_INLINE int32x4_t AddDot(int32x4_t acc, uint8x16_t codes, const uint8_t* factors) {
  return vreinterpretq_s32_u32(
      vdotq_u32(vreinterpretq_u32_s32(acc), codes, BroadcastQuad(factors)));
}

}  // namespace turboquant::neondotprod

#endif  // TURBOQUANT_KERNELS_NEONDOTPROD_VEC_H_
