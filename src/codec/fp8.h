// fp8_e4m3 and fp8_e5m2: the two 8-bit floats of the OCP 8-bit Floating Point Specification,
// revision 1.0 (docs/formats/fp8.md).
//
//   E4M3   s eeee mmm    bias 7;  largest 448 (0x7E), smallest normal 2^-6, step below it 2^-9;
//                        no infinity, 0x7F is NaN
//   E5M2   s eeeee mm    bias 15; largest 57344 (0x7B), smallest normal 2^-14, step below it 2^-16;
//                        0x7C is infinity, NaN above
//
// The encoder rounds to nearest, ties to even, and saturates: it never produces infinity or NaN;
// NaN becomes +0. Decoding takes every byte. Scale: none (1), static, or dynamic f16(amax /
// largest).
#ifndef TURBOQUANT_CODEC_FP8_H_
#define TURBOQUANT_CODEC_FP8_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "codec/kv_cache_dtype.h"

namespace turboquant {

inline constexpr float kMaxFp8E4m3 = 448.0f;
inline constexpr float kMaxFp8E5m2 = 57344.0f;
inline constexpr uint8_t kMaxFp8E4m3Code = 0x7E;
inline constexpr uint8_t kMaxFp8E5m2Code = 0x7B;

uint8_t FloatToFp8E4m3(float x);
uint8_t FloatToFp8E5m2(float x);
float Fp8E4m3ToFloat(uint8_t code);
float Fp8E5m2ToFloat(uint8_t code);

// The same by dtype (kFp8E4m3 or kFp8E5m2), under a scale.
uint8_t QuantizeFp8(KvCacheDtype dtype, float x, float inv_scale);
float DequantizeFp8(KvCacheDtype dtype, uint8_t code, float scale);

// One row (or group) under one dynamic scale. Returns the f16 scale.
uint16_t QuantizeFp8Row(KvCacheDtype dtype, std::span<const float> x, std::span<uint8_t> codes);
void DequantizeFp8Row(KvCacheDtype dtype, std::span<const uint8_t> codes, uint16_t scale,
                      std::span<float> x);

static_assert(CodeBits(KvCacheDtype::kFp8E4m3) == 8 && CodeBits(KvCacheDtype::kFp8E5m2) == 8);
static_assert(kMaxFp8E4m3 == 1.75f * 256 && kMaxFp8E5m2 == 1.75f * 32768);
static_assert(LargestCode(KvCacheDtype::kFp8E4m3) == kMaxFp8E4m3 &&
              LargestCode(KvCacheDtype::kFp8E5m2) == kMaxFp8E5m2);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_FP8_H_
