#include "kernels/sample_weights.h"

#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace turboquant {
namespace {

bool HasMinInFile(WeightType type) {
  return type == WeightType::kQ4_1 || type == WeightType::kQ5_1 || type == WeightType::kQ4K ||
         type == WeightType::kQ5K;
}

void PutFactor(float largest, std::mt19937& random, uint8_t* out) {
  const float size = largest * static_cast<float>(1 + random() % 8) / 8;
  const uint16_t bits = FloatToHalf(random() % 2 == 0 ? size : -size);
  std::memcpy(out, &bits, sizeof(bits));
}

}  // namespace

void FillWeights(WeightType type, const SampleWeights& sample, std::mt19937& random,
                 std::span<uint8_t> blocks) {
  const size_t block_bytes = LayoutOf(type).bytes;
  CHECK_EQ(blocks.size() % block_bytes, size_t{0});
  for (uint8_t& byte : blocks) byte = sample.byte.value_or(static_cast<uint8_t>(random()));
  for (size_t at = 0; at < blocks.size(); at += block_bytes) {
    PutFactor(sample.largest, random, &blocks[at]);
    if (HasMinInFile(type)) PutFactor(sample.largest, random, &blocks[at + 2]);
  }
}

}  // namespace turboquant
