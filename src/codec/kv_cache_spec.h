// What one layer of the cache stores, and the byte layout of its blocks (docs/formats/block.md).
//
// A block holds block_size tokens of one layer. It is num_kv_heads runs of equal length, one per KV
// head:
//
//   [K scales | V scales | K zero points | V zero points | K mean | shared | block scales | pad
//   to 64][K lines][V lines]
//
// Scales and zero points are f16, [num_groups][block_size] each, present for dynamic granularities
// only (zero points for int4_asym only); scales of per_token_head_u8 are one byte [block_size]
// (codec/scale_fit.h). The K mean (transform centered, codec/block_mean.h) is there where K has
// one; what the tokens share (f16 scale of the mean, 16-bit biases of the K and of the V scales)
// where a side has a mean or byte scales. Block scales are f16, of K and of V, for the sides
// that have one: the scale of the block or a factor of static ones (codec/block_scale.h). A line is
// 64 bytes = 16 lanes of 4 bytes; a lane holds e = 32 / CodeBits codes along the axis that the
// attention product sums over:
//   K: lane = token,   codes = e consecutive channels: [block_size/16][head_dim/e][16 tokens][e]
//   V: lane = channel, codes = e consecutive tokens:   [block_size/e][head_dim/16][16 channels][e]
// For 4-bit codes a line carries two 8-bit-style lines as planes (low nibble first): for K the low
// nibble of byte [token][i] is channel 8*g + i and the high nibble channel 8*g + 4 + i (g = line of
// the 16-token group); for V the low nibble of byte [channel][i] is token 8*g + i, the high nibble
// token 8*g + 4 + i.
// Narrow formats (int6 .. int2) pack lines of 8-bit codes as codec/narrow.h says.
// int8 K codes are stored biased, u8 = code + 128; int8 V codes are stored as s8. int4_sym codes
// are stored as code + 8 on both sides; int4_asym codes 0..15 as they are. Codes of more than one
// byte and f16 scales are little endian.
#ifndef TURBOQUANT_CODEC_KV_CACHE_SPEC_H_
#define TURBOQUANT_CODEC_KV_CACHE_SPEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "codec/block_mean.h"
#include "codec/kv_cache_dtype.h"

namespace turboquant {

enum class KvSide : uint8_t { kKey, kValue };

struct KvSideSpec {
  KvCacheDtype dtype = KvCacheDtype::kInt8;
  ScaleGranularity granularity = ScaleGranularity::kPerTokenHead;
  int group_size = 0;  // channels that share a scale; only for kPerGroup
  KvTransform transform = KvTransform::kNone;
  bool fixed = false;  // static granularities only: blocks do not correct the scale

  // Channels under one scale: group_size, or head_dim where a scale covers the head.
  constexpr int ChannelsPerScale(int head_dim) const {
    return granularity == ScaleGranularity::kPerGroup ? group_size : head_dim;
  }
  // Scales stored per token and head in the block: 0 where none is.
  constexpr int ScalesPerToken(int head_dim) const {
    return IsPerToken(granularity) ? head_dim / ChannelsPerScale(head_dim) : 0;
  }
  constexpr bool HasByteScales() const { return granularity == ScaleGranularity::kPerTokenHeadU8; }
  constexpr bool HasMean() const { return IsCentered(transform); }
  constexpr bool HasCorrection() const { return IsStatic(granularity) && !fixed; }
  constexpr bool HasBlockScale() const {
    return granularity == ScaleGranularity::kPerBlock || HasCorrection();
  }
  constexpr bool HasZeroPoint() const { return dtype == KvCacheDtype::kInt4Asym; }
  bool operator==(const KvSideSpec&) const = default;
};

struct KvCacheSpec {
  KvSideSpec k;
  KvSideSpec v;
  int num_kv_heads = 0;
  int head_dim = 0;
  int block_size = 64;  // tokens per block: 16, 32, 64, 128 or 256

  // kUnsupported or kInvalidArgument with the reason and what is supported. Everything below CHECKs
  // or assumes a valid spec.
  [[nodiscard]] Status Validate() const;
  size_t BytesPerBlock() const;
  double BytesPerToken() const { return static_cast<double>(BytesPerBlock()) / block_size; }
  // Stored bits per value over both sides, with scales, zero points and padding.
  double BitsPerValue() const;
  std::string ToString() const;  // "int8/int8 per_token_head rotated"
  bool operator==(const KvCacheSpec&) const = default;
};

// Byte offsets inside the run of one KV head.
struct KvBlockLayout {
  size_t k_scales = 0, v_scales = 0, k_zero_points = 0, v_zero_points = 0;
  size_t k_mean = 0;                                            // codes
  size_t k_mean_scale = 0, k_scale_bias = 0, v_scale_bias = 0;  // 16 bits each
  size_t k_block_scale = 0, v_block_scale = 0;                  // 16 bits each
  size_t header_bytes = 0;                                      // all of the above, without padding
  size_t k_lines = 0, v_lines = 0;
  size_t bytes_per_head = 0;  // multiple of 64
  explicit constexpr KvBlockLayout(const KvCacheSpec& spec);
};

// The granularity that a format has if none is asked for: per_token_head_u8 for int8 and the narrow
// formats, per_token_head for int4_sym and int4_asym, none otherwise.
ScaleGranularity DefaultGranularity(KvCacheDtype dtype);

// The transform that a side has if none is asked for: rotated where there are 8 bits or fewer,
// except under scales per channel, which belong to the model's own channels; centered for K under
// byte scales, where the mean fits into bytes that the f16 scales would take.
KvTransform DefaultTransform(KvSide side, KvCacheDtype dtype, ScaleGranularity granularity);

// "int8", "int8/int4", with "--kv-scale-granularity" text ("per_token_head", "per_group:64",
// "per_head:fixed", K and V apart with '/', empty = the format's default) and "--kv-transform" text
// ("rotated", "none", "centered", "balanced", the same way). One granularity or transform for both
// sides passes over a side whose format takes none (f32, f16, bf16). Returns the K and V side;
// notes (may be null) collects what aliases mapped to. What depends on the head size is left to
// KvCacheSpec::Validate.
struct KvSidePair {
  KvSideSpec k, v;
};
Result<KvSidePair> ParseKvFormat(std::string_view dtype, std::string_view granularity,
                                 std::string_view transform, std::vector<std::string>* notes);

// What calibration gives one layer: static scales, for granularities that keep none in the block (x
// ~ scale * code), and factors of K's channels.
struct KvStaticScales {
  // kPerTensor [1], kPerHead [num_kv_heads], kPerChannel [num_kv_heads][head_dim]; else empty
  std::vector<float> k, v;
  std::vector<float> k_balance;  // kBalanced [num_kv_heads][head_dim]; else empty
};

// Whether a layer takes anything from a calibration table.
constexpr bool IsCalibrated(const KvSideSpec& k, const KvSideSpec& v) {
  return IsStatic(k.granularity) || IsStatic(v.granularity) ||
         k.transform == KvTransform::kBalanced;
}

// kInvalidArgument unless each side has the number of scales that its granularity wants, and K the
// factors that its transform wants, every one within [2^-126, 2^126], so that its inverse is a
// normal number too.
[[nodiscard]] Status ValidateStaticScales(const KvCacheSpec& spec, const KvStaticScales& scales);

// Scale for the values of one KV head as the codecs and kernels take it. {1, null} where `side` has
// no static scale.
struct HeadScales {
  float head = 1.0f;                // factor for the whole head
  const float* channels = nullptr;  // [head_dim] factors, or null
};
HeadScales ScalesOfHead(const KvSideSpec& side, const std::vector<float>& scales, int head,
                        int head_dim);

constexpr KvBlockLayout::KvBlockLayout(const KvCacheSpec& spec) {
  const size_t tokens = static_cast<size_t>(spec.block_size);
  const auto scale_bytes = [&](const KvSideSpec& side) {
    const size_t scales = tokens * static_cast<size_t>(side.ScalesPerToken(spec.head_dim));
    return side.HasByteScales() ? scales : 2 * scales;
  };
  const size_t codes = tokens * static_cast<size_t>(spec.head_dim);
  v_scales = k_scales + scale_bytes(spec.k);
  k_zero_points = v_scales + scale_bytes(spec.v);
  v_zero_points = k_zero_points + (spec.k.HasZeroPoint() ? scale_bytes(spec.k) : 0);
  k_mean = v_zero_points + (spec.v.HasZeroPoint() ? scale_bytes(spec.v) : 0);
  k_mean_scale = k_mean + (spec.k.HasMean() ? MeanBytes(spec.k.dtype, spec.head_dim) : 0);
  k_scale_bias = k_mean_scale + 2;
  v_scale_bias = k_scale_bias + 2;
  const bool shared = spec.k.HasMean() || spec.k.HasByteScales() || spec.v.HasByteScales();
  k_block_scale = shared ? v_scale_bias + 2 : k_mean_scale;
  v_block_scale = k_block_scale + (spec.k.HasBlockScale() ? 2 : 0);
  header_bytes = v_block_scale + (spec.v.HasBlockScale() ? 2 : 0);
  k_lines = (header_bytes + 63) / 64 * 64;
  v_lines = k_lines + codes * static_cast<size_t>(CodeBits(spec.k.dtype)) / 8;
  bytes_per_head = v_lines + codes * static_cast<size_t>(CodeBits(spec.v.dtype)) / 8;
}

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_KV_CACHE_SPEC_H_
