// int8: symmetric 8-bit codes -127..127 (docs/formats/int8.md).
//
//   V byte   7 6 5 4 3 2 1 0        K byte   7 6 5 4 3 2 1 0
//            s  two's complement             unsigned code + 128 (1..255)
//
// Scale: f16(amax / 127) per token and head or per group; static: as given. -128 is never produced,
// so that negating a code cannot overflow. K is biased because the dot-product instructions take
// one unsigned and one signed operand.
#ifndef TURBOQUANT_CODEC_INT8_H_
#define TURBOQUANT_CODEC_INT8_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kv_cache_spec.h"

namespace turboquant {

inline constexpr int kInt8MaxCode = 127;
inline constexpr int kInt8KeyBias = 128;

// One value under 1 / scale; NaN gives 0, infinities the end codes. And back.
int8_t QuantizeInt8(float x, float inv_scale);
float DequantizeInt8(int8_t code, float scale);

// One row (or group) under one dynamic scale. Returns the f16 scale.
uint16_t QuantizeInt8Row(std::span<const float> x, std::span<int8_t> codes);
void DequantizeInt8Row(std::span<const int8_t> codes, uint16_t scale, std::span<float> x);

// The byte that a block holds.
constexpr uint8_t StoredInt8(KvSide side, int8_t code) {
  return static_cast<uint8_t>(side == KvSide::kKey ? code + kInt8KeyBias : code);
}
constexpr int8_t CodeOfStoredInt8(KvSide side, uint8_t stored) {
  return static_cast<int8_t>(side == KvSide::kKey ? stored - kInt8KeyBias : stored);
}

static_assert(8 * sizeof(int8_t) == CodeBits(KvCacheDtype::kInt8));
static_assert(StoredInt8(KvSide::kKey, -127) == 1 && StoredInt8(KvSide::kKey, 127) == 255);
static_assert(StoredInt8(KvSide::kValue, -127) == 0x81 &&
              CodeOfStoredInt8(KvSide::kValue, 0x81) == -127);
// 64 tokens x head of 64: two runs of 64 f16 scales, two tiles of 64 x 64 bytes.
static_assert(KvBlockLayout({.k = {}, .v = {}, .num_kv_heads = 1, .head_dim = 64, .block_size = 64})
                  .bytes_per_head == 2 * 64 * 2 + 2 * 64 * 64);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_INT8_H_
