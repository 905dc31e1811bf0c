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

// 32 columns of weights: scale * sum(codes * x) + min * sum(x).
struct SubBlock {
  int codes[kActivationBlock];
  float scale, min;
};

int Nibble(const uint8_t* bytes, int i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

void Read32(WeightType type, const uint8_t* block, SubBlock* out) {
  const float scale = HalfAt(block);
  const uint8_t* codes = block + LayoutOf(type).codes;
  uint32_t fifth = 0;
  if (type == WeightType::kQ5_0 || type == WeightType::kQ5_1) std::memcpy(&fifth, codes - 4, 4);
  out->scale = scale;
  out->min = 0;
  if (type == WeightType::kQ4_0) out->min = -8 * scale;
  if (type == WeightType::kQ5_0) out->min = -16 * scale;
  if (type == WeightType::kQ4_1 || type == WeightType::kQ5_1) out->min = HalfAt(block + 2);
  for (int i = 0; i < kActivationBlock; ++i) {
    if (type == WeightType::kQ8_0) {
      out->codes[i] = static_cast<int8_t>(codes[i]);
    } else {
      out->codes[i] = Nibble(codes, i) | static_cast<int>(fifth >> i & 1) << 4;
    }
  }
}

// Six-bit factors of sub-block j: of codes, and of the min.
void FactorsOf(const uint8_t* packed, int j, int* scale, int* min) {
  if (j < 4) {
    *scale = packed[j] & 63;
    *min = packed[j + 4] & 63;
  } else {
    *scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
    *min = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
  }
}

void ReadQ45K(WeightType type, const uint8_t* block, int j, SubBlock* out) {
  int scale = 0, min = 0;
  FactorsOf(block + 4, j, &scale, &min);
  out->scale = HalfAt(block) * static_cast<float>(scale);
  out->min = -(HalfAt(block + 2) * static_cast<float>(min));
  const uint8_t* codes = block + LayoutOf(type).codes + 32 * (j / 2);
  for (int l = 0; l < kActivationBlock; ++l) {
    out->codes[l] = codes[l] >> 4 * (j % 2) & 15;
    if (type == WeightType::kQ5K) out->codes[l] |= (block[16 + l] >> j & 1) << 4;
  }
}

// Columns [32 * b, 32 * b + 32) of a row of weights.
SubBlock Read(WeightType type, const uint8_t* row, int b) {
  SubBlock out;
  const WeightLayout layout = LayoutOf(type);
  const int per_block = layout.columns / kActivationBlock;
  const uint8_t* block = row + static_cast<size_t>(b / per_block) * layout.bytes;
  if (per_block > 1) {
    ReadQ45K(type, block, b % per_block, &out);
  } else {
    Read32(type, block, &out);
  }
  return out;
}

float Product(const MatmulArgs& args, int output, const uint8_t* x) {
  const int num_blocks = args.num_columns / kActivationBlock;
  const uint8_t* weights = args.weights + static_cast<size_t>(output) * args.weights_stride;
  const auto* codes = reinterpret_cast<const int8_t*>(x);
  const auto* scales = reinterpret_cast<const float*>(x + args.num_columns);
  const float* sums = scales + num_blocks;
  float acc = 0;
  for (int b = 0; b < num_blocks; ++b, codes += kActivationBlock) {
    const SubBlock block = Read(args.type, weights, b);
    int dot = 0;
    for (int i = 0; i < kActivationBlock; ++i) dot += block.codes[i] * codes[i];
    acc = std::fma(static_cast<float>(dot), block.scale * scales[b], acc);
    if (args.type != WeightType::kQ8_0) acc = std::fma(block.min, sums[b], acc);
  }
  return acc;
}

}  // namespace

void QuantizeRow(const float* x, int num_columns, uint8_t* out) {
  auto* codes = reinterpret_cast<int8_t*>(out);
  auto* scales = reinterpret_cast<float*>(out + num_columns);
  float* sums = scales + num_columns / kActivationBlock;
  for (int b = 0; b < num_columns / kActivationBlock; ++b) {
    const float* block = x + b * kActivationBlock;
    float amax = 0;
    for (int i = 0; i < kActivationBlock; ++i) amax = std::max(amax, std::fabs(block[i]));
    const float inverse = amax >= kTinyMax ? 127.0f / amax : 0.0f;
    int sum = 0;
    for (int i = 0; i < kActivationBlock; ++i) {
      const int code = static_cast<int>(std::nearbyint(block[i] * inverse));
      codes[b * kActivationBlock + i] = static_cast<int8_t>(code);
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
