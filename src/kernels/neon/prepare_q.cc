#include "kernels/neon/kernels.h"
#include "kernels/neon/prepared_q.h"

namespace turboquant::neon {
namespace {

// q' in the order of the channels.
void Prepare(const PrepareQArgs& args) {
  const float32x4_t scale = vdupq_n_f32(args.scale);
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + Size(r) * args.q_stride;
    auto* out = reinterpret_cast<float*>(static_cast<uint8_t*>(args.out) +
                                         Size(r) * RowBytes(args.head_dim, args.group_size));
    for (int c = 0; c < args.head_dim; c += 4) {
      float32x4_t value = vmulq_f32(vld1q_f32(q + c), scale);
      if (args.channel_scales != nullptr)
        value = vmulq_f32(value, vld1q_f32(args.channel_scales + c));
      vst1q_f32(out + c, value);
    }
  }
}

}  // namespace

void PrepareQF32(const PrepareQArgs& args) { Prepare(args); }
void PrepareQF16(const PrepareQArgs& args) { Prepare(args); }
void PrepareQBf16(const PrepareQArgs& args) { Prepare(args); }
void PrepareQFp8E4m3(const PrepareQArgs& args) { Prepare(args); }
void PrepareQFp8E5m2(const PrepareQArgs& args) { Prepare(args); }

}  // namespace turboquant::neon
