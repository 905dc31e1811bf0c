#include "kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/scalar/kernels.h"

namespace turboquant::scalar {
namespace {

float HalfAt(const uint8_t* bytes) {
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return HalfToFloat(bits);
}

// One block of weights: what is added for it is scale * sum(codes * x) + min * sum(x).
struct Block {
  int codes[kWeightBlock];
  float scale, min;
};

Block ReadBlock(WeightType type, const uint8_t* bytes) {
  Block block = {.codes = {}, .scale = HalfAt(bytes), .min = 0};
  const uint8_t* codes = bytes + (type == WeightType::kQ4_1 ? 4 : 2);
  if (type == WeightType::kQ4_0) block.min = -8 * block.scale;
  if (type == WeightType::kQ4_1) block.min = HalfAt(bytes + 2);
  for (int i = 0; i < kWeightBlock; ++i) {
    if (type == WeightType::kQ8_0) {
      block.codes[i] = static_cast<int8_t>(codes[i]);
    } else {
      block.codes[i] = i < 16 ? codes[i] & 15 : codes[i - 16] >> 4;
    }
  }
  return block;
}

float Product(const MatmulArgs& args, int output, const uint8_t* x) {
  const int num_blocks = args.num_columns / kWeightBlock;
  const uint8_t* weights = args.weights + static_cast<size_t>(output) * args.weights_stride;
  const auto* codes = reinterpret_cast<const int8_t*>(x);
  const auto* scales = reinterpret_cast<const float*>(x + args.num_columns);
  const float* sums = scales + num_blocks;
  float acc = 0;
  for (int b = 0; b < num_blocks; ++b) {
    const Block block =
        ReadBlock(args.type, weights + static_cast<size_t>(b) * WeightBlockBytes(args.type));
    int dot = 0;
    for (int i = 0; i < kWeightBlock; ++i) dot += block.codes[i] * codes[b * kWeightBlock + i];
    const float scale = block.scale * scales[b];
    acc = std::fma(static_cast<float>(dot), scale, acc);
    if (args.type != WeightType::kQ8_0) acc = std::fma(block.min, sums[b], acc);
  }
  return acc;
}

}  // namespace

void QuantizeRow(const float* x, int num_columns, uint8_t* out) {
  auto* codes = reinterpret_cast<int8_t*>(out);
  auto* scales = reinterpret_cast<float*>(out + num_columns);
  float* sums = scales + num_columns / kWeightBlock;
  for (int b = 0; b < num_columns / kWeightBlock; ++b) {
    const float* block = x + b * kWeightBlock;
    float amax = 0;
    for (int i = 0; i < kWeightBlock; ++i) amax = std::max(amax, std::fabs(block[i]));
    const float inverse = amax > 0 ? 127.0f / amax : 0.0f;
    int sum = 0;
    for (int i = 0; i < kWeightBlock; ++i) {
      const int code = static_cast<int>(std::nearbyint(block[i] * inverse));
      codes[b * kWeightBlock + i] = static_cast<int8_t>(code);
      sum += code;
    }
    scales[b] = HalfToFloat(FloatToHalf(amax / 127.0f));
    sums[b] = scales[b] * static_cast<float>(sum);
  }
}

void Matmul(const MatmulArgs& args) {
  for (int r = 0; r < args.num_rows; ++r) {
    const uint8_t* x = args.x + static_cast<size_t>(r) * args.x_stride;
    float* out = args.out + static_cast<size_t>(r) * args.out_stride;
    for (int n = args.first_output; n < args.last_output; ++n) out[n] = Product(args, n, x);
  }
}

}  // namespace turboquant::scalar
