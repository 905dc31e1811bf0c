#include "kernels/neon/kernels.h"
#include "kernels/neon/vec.h"

namespace turboquant::neon {
namespace {

uint16x4_t FourHalves(float32x4_t x) {
  const float32x4_t number = Keep(x, vceqq_f32(x, x));  // NaN to 0
  const float32x4_t low = vmaxq_f32(number, vdupq_n_f32(-65504.0f));
  return vreinterpret_u16_f16(vcvt_f16_f32(vminq_f32(low, vdupq_n_f32(65504.0f))));
}

}  // namespace

void ToHalf(const ConvertArgs& args) {
  size_t i = 0;
  for (; i + 4 <= args.n; i += 4) vst1_u16(args.out + i, FourHalves(vld1q_f32(args.in + i)));
  if (i == args.n) return;
  float in[4] = {};
  uint16_t out[4];
  __builtin_memcpy(in, args.in + i, (args.n - i) * sizeof(float));
  vst1_u16(out, FourHalves(vld1q_f32(in)));
  __builtin_memcpy(args.out + i, out, (args.n - i) * sizeof(uint16_t));
}

}  // namespace turboquant::neon
