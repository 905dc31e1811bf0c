#include <cmath>

#include "kernels/scalar/kernels.h"
#include "kernels/scalar/lines.h"

namespace turboquant::scalar {
namespace {

// q' of one channel.
float Folded(const PrepareQArgs& args, int row, int channel) {
  const float scaled =
      args.q[static_cast<size_t>(row) * args.q_stride + static_cast<size_t>(channel)] * args.scale;
  return args.channel_scales == nullptr ? scaled : scaled * args.channel_scales[channel];
}

// sq, or 0 or NaN for a row that gets no codes.
float ScaleOfRow(const PrepareQArgs& args, int row, float max_code) {
  float max = 0;
  for (int c = 0; c < args.head_dim; ++c) {
    const float value = Folded(args, row, c);
    if (!std::isfinite(value)) return NAN;
    max = std::fmax(max, std::fabs(value));
  }
  return max < kTinyMax ? 0.0f : max / max_code;
}

void PrepareInteger(const PrepareQArgs& args, float max_code) {
  for (int r = 0; r < args.num_rows; ++r) {
    const IntegerQ q(args.out, r, args.head_dim, args.group_size);
    *q.scale = ScaleOfRow(args, r, max_code);
    for (int g = 0; g < args.head_dim / args.group_size; ++g) {
      q.sums[g] = 0;
      for (int c = g * args.group_size; c < (g + 1) * args.group_size; ++c) {
        q.codes[c] = *q.scale > 0 ? static_cast<int16_t>(std::rint(Folded(args, r, c) / *q.scale))
                                  : int16_t{0};
        q.sums[g] += q.codes[c];
      }
    }
  }
}

void PrepareFloat(const PrepareQArgs& args) {
  for (int r = 0; r < args.num_rows; ++r) {
    float* q = FloatQ(args.out, r, args.head_dim, args.group_size);
    for (int c = 0; c < args.head_dim; ++c) q[c] = Folded(args, r, c);
  }
}

}  // namespace

void PrepareQF32(const PrepareQArgs& args) { PrepareFloat(args); }
void PrepareQF16(const PrepareQArgs& args) { PrepareFloat(args); }
void PrepareQBf16(const PrepareQArgs& args) { PrepareFloat(args); }
void PrepareQInt8(const PrepareQArgs& args) { PrepareInteger(args, kMaxQCode); }
void PrepareQFp8E4m3(const PrepareQArgs& args) { PrepareFloat(args); }
void PrepareQFp8E5m2(const PrepareQArgs& args) { PrepareFloat(args); }
void PrepareQNarrow(const PrepareQArgs& args) { PrepareInteger(args, kMaxNarrowQCode); }
void PrepareQInt4Sym(const PrepareQArgs& args) { PrepareInteger(args, kMaxQCode); }
void PrepareQInt4Asym(const PrepareQArgs& args) { PrepareInteger(args, kMaxQCode); }

}  // namespace turboquant::scalar
