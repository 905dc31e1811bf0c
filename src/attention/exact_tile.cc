#include "attention/exact_tile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/half.h"

namespace turboquant {
namespace {

constexpr size_t kLane = 16;  // tokens (K) or channels (V) side by side in a line

uint16_t FiniteHalf(uint16_t half) {
  const auto magnitude = static_cast<uint16_t>(half & 0x7FFFu);
  if (magnitude < 0x7C00u) [[likely]]
    return half;
  return magnitude == 0x7C00u ? static_cast<uint16_t>((half & 0x8000u) | 0x7BFFu) : uint16_t{0};
}

float FiniteFloat(float value) {
  if (std::isnan(value)) return 0.0f;
  constexpr float kMax = std::numeric_limits<float>::max();
  return std::clamp(value, -kMax, kMax);
}

void WriteHalfToken(const ExactTile& tile, size_t slot, const float* k, const float* v,
                    ConvertFn to_half) {
  const auto d = static_cast<size_t>(tile.head_dim);
  uint16_t row[kMaxHeadDim];
  to_half({.in = k, .out = row, .n = d});
  // A pair of channels is 4 bytes of a line; the next pair is one line further.
  auto* k_out =
      reinterpret_cast<uint16_t*>(tile.k) + (slot / kLane) * kLane * d + 2 * (slot % kLane);
  for (size_t c = 0; c < d; c += 2) {
    k_out[kLane * c] = FiniteHalf(row[c]);
    k_out[kLane * c + 1] = FiniteHalf(row[c + 1]);
  }
  to_half({.in = v, .out = row, .n = d});
  auto* v_out = reinterpret_cast<uint16_t*>(tile.v) + (slot / 2) * 2 * d + slot % 2;
  for (size_t c = 0; c < d; ++c) v_out[2 * c] = FiniteHalf(row[c]);
}

void WriteFloatToken(const ExactTile& tile, size_t slot, const float* k, const float* v) {
  const auto d = static_cast<size_t>(tile.head_dim);
  auto* k_out = reinterpret_cast<float*>(tile.k) + (slot / kLane) * kLane * d + slot % kLane;
  for (size_t c = 0; c < d; ++c) k_out[kLane * c] = FiniteFloat(k[c]);
  auto* v_out = reinterpret_cast<float*>(tile.v) + slot * d;
  for (size_t c = 0; c < d; ++c) v_out[c] = FiniteFloat(v[c]);
}

size_t BytesPerSide(const ExactTile& tile, size_t num_tokens) {
  return num_tokens * static_cast<size_t>(tile.head_dim) *
         static_cast<size_t>(CodeBits(tile.dtype)) / 8;
}

}  // namespace

ExactTile ExactTileOfHead(const KvCacheSpec& spec, const KvBlockLayout& layout, uint8_t* block,
                          int head) {
  uint8_t* run = block + static_cast<size_t>(head) * layout.bytes_per_head;
  return {.dtype = spec.k.dtype,
          .head_dim = spec.head_dim,
          .k = run + layout.k_lines,
          .v = run + layout.v_lines};
}

void WriteToken(const ExactTile& tile, int slot, const float* k, const float* v,
                ConvertFn to_half) {
  DCHECK_LE(tile.head_dim, kMaxHeadDim);
  if (tile.dtype == KvCacheDtype::kF16) {
    WriteHalfToken(tile, static_cast<size_t>(slot), k, v, to_half);
  } else {
    DCHECK_EQ(tile.dtype, KvCacheDtype::kF32);
    WriteFloatToken(tile, static_cast<size_t>(slot), k, v);
  }
}

void CopySlots(const ExactTile& from, int num_slots, const ExactTile& to) {
  DCHECK_EQ(from.dtype, to.dtype);
  DCHECK_EQ(from.head_dim, to.head_dim);
  const size_t bytes =
      BytesPerSide(from, (static_cast<size_t>(num_slots) + kLane - 1) / kLane * kLane);
  std::memcpy(to.k, from.k, bytes);
  std::memcpy(to.v, from.v, bytes);
}

void GatherKeys(const ExactTile& tile, int num_tokens, float* x) {
  const auto d = static_cast<size_t>(tile.head_dim);
  for (size_t t = 0; t < static_cast<size_t>(num_tokens); ++t) {
    const size_t group = (t / kLane) * kLane * d;
    float* row = x + t * d;
    if (tile.dtype == KvCacheDtype::kF16) {
      const auto* in = reinterpret_cast<const uint16_t*>(tile.k) + group + 2 * (t % kLane);
      for (size_t c = 0; c < d; c += 2) {
        row[c] = HalfToFloat(in[kLane * c]);
        row[c + 1] = HalfToFloat(in[kLane * c + 1]);
      }
    } else {
      const auto* in = reinterpret_cast<const float*>(tile.k) + group + t % kLane;
      for (size_t c = 0; c < d; ++c) row[c] = in[kLane * c];
    }
  }
}

void GatherValues(const ExactTile& tile, int num_tokens, float* x) {
  const auto d = static_cast<size_t>(tile.head_dim);
  if (tile.dtype == KvCacheDtype::kF32) {
    std::memcpy(x, tile.v, static_cast<size_t>(num_tokens) * d * sizeof(float));
    return;
  }
  for (size_t t = 0; t < static_cast<size_t>(num_tokens); ++t) {
    const auto* in = reinterpret_cast<const uint16_t*>(tile.v) + (t / 2) * 2 * d + t % 2;
    for (size_t c = 0; c < d; ++c) x[t * d + c] = HalfToFloat(in[2 * c]);
  }
}

}  // namespace turboquant
