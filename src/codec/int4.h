// int4 and int4_asym: 4-bit codes, two to a byte (docs/formats/int4.md).
//
//   byte   7 6 5 4 | 3 2 1 0      low nibble: code i of the lane, high nibble: code i + 4
//
//   int4:       nibble = code + 8, code -7..7 (nibble 0 is never produced); x = scale * code
//               scale = f16(amax / 7)
//   int4_asym:  nibble = code 0..15; x = scale * (code - zero_point)
//               scale = f16((max - min) / 15), zero_point = f16(-min / scale)
//
// Lanes are in codec/kv_cache_spec.h, corner cases in codec/tile.h.
#ifndef TURBOQUANT_CODEC_INT4_H_
#define TURBOQUANT_CODEC_INT4_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kv_cache_spec.h"

namespace turboquant {

inline constexpr int kInt4MaxCode = 7;
inline constexpr int kInt4Bias = 8;
inline constexpr int kInt4AsymMaxCode = 15;

// One value under 1 / scale; NaN gives 0, infinities the end codes. And back.
int8_t QuantizeInt4(float x, float inv_scale);
float DequantizeInt4(int8_t code, float scale);

// One row (or group) under one dynamic scale. Returns the f16 scale.
uint16_t QuantizeInt4Row(std::span<const float> x, std::span<int8_t> codes);
void DequantizeInt4Row(std::span<const int8_t> codes, uint16_t scale, std::span<float> x);

struct AsymScale {
  uint16_t scale, zero_point;  // f16
};
// NaN gives the code nearest to value 0.
uint8_t QuantizeInt4Asym(float x, float inv_scale, float zero_point);
float DequantizeInt4Asym(uint8_t code, float scale, float zero_point);

AsymScale FitInt4Asym(std::span<const float> x);
AsymScale QuantizeInt4AsymRow(std::span<const float> x, std::span<uint8_t> codes);
void DequantizeInt4AsymRow(std::span<const uint8_t> codes, const AsymScale& scale,
                           std::span<float> x);

constexpr uint8_t NibbleOfInt4(int8_t code) { return static_cast<uint8_t>(code + kInt4Bias); }
constexpr int8_t Int4OfNibble(uint8_t nibble) { return static_cast<int8_t>(nibble - kInt4Bias); }

static_assert(CodeBits(KvCacheDtype::kInt4Sym) == 4 && CodeBits(KvCacheDtype::kInt4Asym) == 4);
static_assert(NibbleOfInt4(-7) == 1 && NibbleOfInt4(7) == 15 && Int4OfNibble(1) == -7);
static_assert(sizeof(AsymScale) == 4);
// 64 tokens x head of 64: two runs of 64 f16 scales (and two of zero points), two tiles of 64 x 64
// nibbles.
static_assert(KvBlockLayout({.k = {.dtype = KvCacheDtype::kInt4Sym},
                             .v = {.dtype = KvCacheDtype::kInt4Sym},
                             .num_kv_heads = 1,
                             .head_dim = 64,
                             .block_size = 64})
                  .bytes_per_head == 2 * 64 * 2 + 2 * 64 * 32);
static_assert(KvBlockLayout({.k = {.dtype = KvCacheDtype::kInt4Asym},
                             .v = {.dtype = KvCacheDtype::kInt4Asym},
                             .num_kv_heads = 1,
                             .head_dim = 64,
                             .block_size = 64})
                  .bytes_per_head == 4 * 64 * 2 + 2 * 64 * 32);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_INT4_H_
