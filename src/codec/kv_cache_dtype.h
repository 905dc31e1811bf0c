// How one stored number of the KV cache looks, and which numbers share a scale. Parsed once from
// strings; every switch over these enums lists all cases.
#ifndef TURBOQUANT_CODEC_KV_CACHE_DTYPE_H_
#define TURBOQUANT_CODEC_KV_CACHE_DTYPE_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace turboquant {

inline constexpr int kMaxHeadDimOfSpec = 512;  // largest head that any format takes
inline constexpr int kMaxBlockTokens = 256;    // largest block

enum class KvCacheDtype : uint8_t {
  kF32,       // IEEE binary32; reference and tests
  kF16,       // IEEE binary16
  kBf16,      // bfloat16
  kInt8,      // symmetric, codes -127..127
  kFp8E4m3,   // OCP FP8 E4M3 (finite only), saturating at 448
  kFp8E5m2,   // OCP FP8 E5M2, saturating at 57344
  kInt6,      // narrow: 64 levels, codec/narrow.h
  kInt5,      // narrow: 32 levels
  kInt4,      // narrow: 16 levels
  kInt3,      // narrow: 8 levels
  kInt2,      // narrow: 4 levels
  kInt4Sym,   // symmetric, codes -7..7, two to a byte
  kInt4Asym,  // codes 0..15 with a zero point, two to a byte
};
inline constexpr std::array kAllKvCacheDtypes = {
    KvCacheDtype::kF32,     KvCacheDtype::kF16,     KvCacheDtype::kBf16, KvCacheDtype::kInt8,
    KvCacheDtype::kFp8E4m3, KvCacheDtype::kFp8E5m2, KvCacheDtype::kInt6, KvCacheDtype::kInt5,
    KvCacheDtype::kInt4,    KvCacheDtype::kInt3,    KvCacheDtype::kInt2, KvCacheDtype::kInt4Sym,
    KvCacheDtype::kInt4Asym};

enum class ScaleGranularity : uint8_t {
  kNone,            // no scale (f32, f16, bf16; FP8 at scale 1)
  kPerTensor,       // static: one scale per layer and side (codec/block_scale.h)
  kPerHead,         // static: one per KV head
  kPerChannel,      // static: one per KV head and channel
  kPerBlock,        // dynamic: one f16 per KV head of a block (codec/block_scale.h)
  kPerTokenHead,    // dynamic: one f16 per token and head, in the block
  kPerTokenHeadU8,  // dynamic: one 8-bit float per token and head (codec/scale_fit.h)
  kPerGroup,        // dynamic: one f16 per token, head and group of channels, in the block
};

// What happens to a vector before it is quantized.
enum class KvTransform : uint8_t {
  kNone,
  kRotated,   // codec/rotation.h; queries are rotated alike, outputs are rotated back
  kCentered,  // K only: rotated, and less the block's own mean (codec/block_mean.h)
  kBalanced,  // K only: centered, and every channel times a calibrated factor first, by which the
              // queries are divided (KvStaticScales::k_balance)
};
constexpr bool IsCentered(KvTransform transform) {
  return transform == KvTransform::kCentered || transform == KvTransform::kBalanced;
}
constexpr bool IsRotated(KvTransform transform) { return transform != KvTransform::kNone; }

// Bits of one code, scales not included.
constexpr int CodeBits(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kF32:
      return 32;
    case KvCacheDtype::kF16:
    case KvCacheDtype::kBf16:
      return 16;
    case KvCacheDtype::kInt8:
    case KvCacheDtype::kFp8E4m3:
    case KvCacheDtype::kFp8E5m2:
      return 8;
    case KvCacheDtype::kInt6:
      return 6;
    case KvCacheDtype::kInt5:
      return 5;
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt4Sym:
    case KvCacheDtype::kInt4Asym:
      return 4;
    case KvCacheDtype::kInt3:
      return 3;
    case KvCacheDtype::kInt2:
      return 2;
  }
  return 0;
}
// What the end of a range becomes under a symmetric scale: scale = range / LargestCode. 0 for
// formats that have no such scale.
constexpr float LargestCode(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kInt8:
      return 127;
    case KvCacheDtype::kInt4Sym:
      return 7;
    case KvCacheDtype::kFp8E4m3:
      return 448;
    case KvCacheDtype::kFp8E5m2:
      return 57344;
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
    case KvCacheDtype::kInt4Asym:
    case KvCacheDtype::kF32:
    case KvCacheDtype::kF16:
    case KvCacheDtype::kBf16:
      return 0;
  }
  return 0;
}
// The formats of codec/narrow.h.
constexpr bool IsNarrow(KvCacheDtype dtype) {
  return dtype == KvCacheDtype::kInt6 || dtype == KvCacheDtype::kInt5 ||
         dtype == KvCacheDtype::kInt4 || dtype == KvCacheDtype::kInt3 ||
         dtype == KvCacheDtype::kInt2;
}
// Codes are integers: products are exact, and queries are brought to integers for them.
constexpr bool IsInteger(KvCacheDtype dtype) {
  return dtype == KvCacheDtype::kInt8 || dtype == KvCacheDtype::kInt4Sym ||
         dtype == KvCacheDtype::kInt4Asym || IsNarrow(dtype);
}
// A scale for every token, in the block.
constexpr bool IsPerToken(ScaleGranularity g) {
  return g == ScaleGranularity::kPerTokenHead || g == ScaleGranularity::kPerTokenHeadU8 ||
         g == ScaleGranularity::kPerGroup;
}
// Scales that calibration gives.
constexpr bool IsStatic(ScaleGranularity g) {
  return g == ScaleGranularity::kPerTensor || g == ScaleGranularity::kPerHead ||
         g == ScaleGranularity::kPerChannel;
}

// "int8", "fp8_e4m3", ... and back, in any case. Names of other engines (q8_0, fp8, q4_0, ...) are
// accepted; `note` (may be null) then says what the name was mapped to, else it is left alone.
// Unknown: kInvalidArgument with the list.
std::string_view Name(KvCacheDtype dtype);
Result<KvCacheDtype> ParseKvCacheDtype(std::string_view text, std::string* note);
// "none", "per_tensor", ..., "per_group" (its size is written behind it: "per_group:64").
std::string_view Name(ScaleGranularity granularity);
// "none", "rotated", "centered", "balanced".
std::string_view Name(KvTransform transform);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_KV_CACHE_DTYPE_H_
