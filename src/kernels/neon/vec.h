// Vector helpers of this folder. Only files of kernels/neon include it: what the compiler does not
// inline is emitted under turboquant::neon and cannot stand in for code of another instruction set.
#ifndef TURBOQUANT_KERNELS_NEON_VEC_H_
#define TURBOQUANT_KERNELS_NEON_VEC_H_

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

// The inner loops must be inlined with their accumulators in registers.
#define TQ_ALWAYS_INLINE inline __attribute__((always_inline))

namespace turboquant::neon {

inline constexpr int kLanes = 16;      // lanes of a line: tokens of K, channels of V
inline constexpr int kLineBytes = 64;  // a lane is 4 bytes
inline constexpr int kQuarters = 4;    // vectors of four 32-bit lanes that a line's lanes fill

inline size_t Size(int n) { return static_cast<size_t>(n); }

inline float32x4_t Zero() { return vdupq_n_f32(0.0f); }

// Four halves to floats.
inline float32x4_t LoadHalves(const uint16_t* p) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

// Lanes where the mask is all ones, else 0.
inline float32x4_t Keep(float32x4_t x, uint32x4_t mask) {
  return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(x), mask));
}

inline uint16_t ToF16(float x) {
  return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}
inline float FromF16(uint16_t h) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}
// 1 / scale as the codecs have it.
inline float Inverse(float scale) { return scale > 0.0f ? 1.0f / scale : 0.0f; }

// Eight values, the unit in which rows are quantized and fitted.
struct Eight {
  float32x4_t low, high;
};
inline Eight LoadEight(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }

// Eight partial sums in the order of codec/scale_fit.h: ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
inline float OrderedSum(const Eight& sums) {
  const float32x4_t four = vaddq_f32(sums.low, sums.high);
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}

}  // namespace turboquant::neon

#endif  // TURBOQUANT_KERNELS_NEON_VEC_H_
