#include "codec/block_mean.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "base/half.h"
#include "codec/scale.h"

namespace turboquant {
namespace {

int NibbleByte(int channel) { return channel / 16 * 8 + channel % 8; }
int NibbleShift(int channel) { return channel / 8 % 2 * 4; }

void StoreMeanCode(int code, int mean_bits, int channel, uint8_t* codes) {
  if (mean_bits == 8) {
    codes[channel] = static_cast<uint8_t>(static_cast<int8_t>(code));
    return;
  }
  uint8_t& byte = codes[NibbleByte(channel)];
  const int shift = NibbleShift(channel);
  const uint32_t keep = shift == 0 ? 0u : byte & 0x0Fu;  // the low nibble comes first
  byte = static_cast<uint8_t>(keep | static_cast<uint32_t>(code + 8) << shift);
}

}  // namespace

int MeanCode(const uint8_t* codes, int mean_bits, int channel) {
  if (mean_bits == 8) return static_cast<int8_t>(codes[channel]);
  return (codes[NibbleByte(channel)] >> NibbleShift(channel) & 15) - 8;
}

void CenterKeys(const CenterArgs& args) {
  CHECK_LE(args.head_dim, kMaxHeadDimOfSpec);
  const auto head_dim = static_cast<size_t>(args.head_dim);
  std::array<float, kMaxHeadDimOfSpec> mean{};
  for (int t = 0; t < args.num_tokens; ++t) {
    const float* row = args.x + static_cast<size_t>(t) * head_dim;
    for (size_t c = 0; c < head_dim; ++c) mean[c] += row[c];
  }
  for (size_t c = 0; c < head_dim; ++c) mean[c] /= static_cast<float>(args.num_tokens);
  const float max_code = args.mean_bits == 8 ? 127.0f : 7.0f;
  *args.scale = SymmetricScale(FiniteAmax({mean.data(), head_dim}), max_code);
  const float scale = HalfToFloat(*args.scale), inv_scale = InverseScale(scale);
  for (int c = 0; c < args.head_dim; ++c) {
    float& value = mean[static_cast<size_t>(c)];
    const float code = std::clamp(std::rint(Scaled(value, inv_scale)), -max_code, max_code);
    StoreMeanCode(static_cast<int>(code), args.mean_bits, c, args.codes);
    value = scale * code;
  }
  for (int t = 0; t < args.num_tokens; ++t) {
    float* row = args.x + static_cast<size_t>(t) * head_dim;
    for (size_t c = 0; c < head_dim; ++c) row[c] -= mean[c];
  }
}

void MeanDot(const MeanDotArgs& args) {
  for (int r = 0; r < args.num_rows; ++r) {
    const float* q = args.q + static_cast<size_t>(r) * args.q_stride;
    float sum = 0;
    for (int c = 0; c < args.head_dim; ++c) {
      sum += q[c] * static_cast<float>(MeanCode(args.codes, args.mean_bits, c));
    }
    args.out[r] = sum * args.scale;
  }
}

}  // namespace turboquant
