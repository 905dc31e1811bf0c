#include "codec/tile.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/half.h"
#include "codec/fp8.h"
#include "codec/int4.h"
#include "codec/int8.h"
#include "codec/narrow.h"
#include "codec/scale.h"

namespace turboquant {
namespace {

// What turns a value into a code and back. inv_scale is 1 / scale, or 0 under a scale of 0.
struct CodeScale {
  float scale = 1.0f;
  float inv_scale = 1.0f;
  float zero_point = 0.0f;
};

CodeScale MakeScale(float scale, float zero_point = 0.0f) {
  return {.scale = scale, .inv_scale = InverseScale(scale), .zero_point = zero_point};
}

// Scale of a channel that all tokens share; 1 where the granularity is none.
CodeScale SharedScale(const KvSideSpec& spec, const HeadScales& scales, int channel) {
  if (spec.granularity == ScaleGranularity::kNone) return {};
  return MakeScale(scales.channels != nullptr ? scales.channels[channel] : scales.head);
}

// f16 scale (and zero point) of a group of values.
AsymScale FitGroup(KvCacheDtype dtype, std::span<const float> group) {
  switch (dtype) {
    case KvCacheDtype::kInt8:
    case KvCacheDtype::kInt4Sym:
    case KvCacheDtype::kFp8E4m3:
    case KvCacheDtype::kFp8E5m2:
      return {.scale = SymmetricScale(FiniteAmax(group), LargestCode(dtype)), .zero_point = 0};
    case KvCacheDtype::kInt4Asym:
      return FitInt4Asym(group);
    case KvCacheDtype::kF32:
    case KvCacheDtype::kF16:
    case KvCacheDtype::kBf16:
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
      break;
  }
  CHECK(false);
  return {};
}

// Bits as they are stored, in the low CodeBits.
uint32_t EncodeValue(KvCacheDtype dtype, KvSide side, float x, const CodeScale& scale) {
  switch (dtype) {
    case KvCacheDtype::kF32:
      return std::bit_cast<uint32_t>(x);
    case KvCacheDtype::kF16:
      return FloatToHalf(x);
    case KvCacheDtype::kBf16:
      return FloatToBf16(x);
    case KvCacheDtype::kInt8:
      return StoredInt8(side, QuantizeInt8(x, scale.inv_scale));
    case KvCacheDtype::kFp8E4m3:
    case KvCacheDtype::kFp8E5m2:
      return QuantizeFp8(dtype, x, scale.inv_scale);
    case KvCacheDtype::kInt4Sym:
      return NibbleOfInt4(QuantizeInt4(x, scale.inv_scale));
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
      return static_cast<uint32_t>(QuantizeNarrow(NarrowFormatOf(dtype), x, scale.inv_scale));
    case KvCacheDtype::kInt4Asym:
      return QuantizeInt4Asym(x, scale.inv_scale, scale.zero_point);
  }
  CHECK(false);
  return 0;
}

float DecodeValue(KvCacheDtype dtype, KvSide side, uint32_t bits, const CodeScale& scale) {
  switch (dtype) {
    case KvCacheDtype::kF32:
      return std::bit_cast<float>(bits);
    case KvCacheDtype::kF16:
      return HalfToFloat(static_cast<uint16_t>(bits));
    case KvCacheDtype::kBf16:
      return Bf16ToFloat(static_cast<uint16_t>(bits));
    case KvCacheDtype::kInt8:
      return DequantizeInt8(CodeOfStoredInt8(side, static_cast<uint8_t>(bits)), scale.scale);
    case KvCacheDtype::kFp8E4m3:
    case KvCacheDtype::kFp8E5m2:
      return DequantizeFp8(dtype, static_cast<uint8_t>(bits), scale.scale);
    case KvCacheDtype::kInt4Sym:
      return DequantizeInt4(Int4OfNibble(static_cast<uint8_t>(bits)), scale.scale);
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
      return scale.scale * static_cast<float>(NarrowFormatOf(dtype).Level(static_cast<int>(bits)));
    case KvCacheDtype::kInt4Asym:
      return DequantizeInt4Asym(static_cast<uint8_t>(bits), scale.scale, scale.zero_point);
  }
  CHECK(false);
  return 0;
}

bool IsEndCode(KvCacheDtype dtype, KvSide side, uint32_t bits) {
  switch (dtype) {
    case KvCacheDtype::kInt8: {
      const int code = CodeOfStoredInt8(side, static_cast<uint8_t>(bits));
      return code == kInt8MaxCode || code == -kInt8MaxCode;
    }
    case KvCacheDtype::kInt4Sym: {
      const int code = Int4OfNibble(static_cast<uint8_t>(bits));
      return code == kInt4MaxCode || code == -kInt4MaxCode;
    }
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
    case KvCacheDtype::kInt4Asym:
      return bits == 0 || bits == (1u << CodeBits(dtype)) - 1;
    case KvCacheDtype::kFp8E4m3:
      return (bits & 0x7F) == kMaxFp8E4m3Code;
    case KvCacheDtype::kFp8E5m2:
      return (bits & 0x7F) == kMaxFp8E5m2Code;
    case KvCacheDtype::kF32:
    case KvCacheDtype::kF16:
    case KvCacheDtype::kBf16:
      return false;
  }
  CHECK(false);
  return false;
}

void CheckShape(const TileShape& shape, const KvSideSpec& spec) {
  CHECK(shape.num_tokens > 0 && shape.num_tokens % 16 == 0);
  CHECK(shape.head_dim > 0 && shape.head_dim % 16 == 0);
  CHECK_EQ(shape.head_dim % spec.ChannelsPerScale(shape.head_dim), 0);
  CHECK(!spec.HasZeroPoint() || IsPerToken(spec.granularity));
}

}  // namespace

CodeAddress AddressOf(KvCacheDtype dtype, const TileShape& shape, int token, int channel) {
  DCHECK(token >= 0 && token < shape.num_tokens && channel >= 0 && channel < shape.head_dim);
  const bool key = shape.side == KvSide::kKey;
  const NarrowFormat narrow = IsNarrow(dtype) ? NarrowFormatOf(dtype) : NarrowFormat{};
  const int codes_per_lane = IsNarrow(dtype) ? narrow.CodesPerLane() : 32 / CodeBits(dtype);
  const int lines_per_unit = IsNarrow(dtype) ? narrow.num_lines : 1;
  // K: lane = token, codes of a lane = channels. V: the other way round; units of a column of 16
  // channels lie as far apart as those of all columns take.
  const int lane = key ? token % 16 : channel % 16;
  const int within = (key ? channel : token) % codes_per_lane;
  const int unit = key ? token / 16 * (shape.head_dim / codes_per_lane) + channel / codes_per_lane
                       : token / codes_per_lane * (shape.head_dim / 16) + channel / 16;
  const size_t lane_byte =
      static_cast<size_t>(unit * lines_per_unit) * 64 + static_cast<size_t>(lane) * 4;
  if (!IsNarrow(dtype)) {
    if (CodeBits(dtype) == 4) {
      return {.byte = lane_byte + static_cast<size_t>(within % 4), .shift = within / 4 * 4};
    }
    return {.byte = lane_byte + static_cast<size_t>(within * CodeBits(dtype) / 8)};
  }
  const int plane = within / 4, planes_per_line = 8 / narrow.low_bits;
  const size_t byte = lane_byte + static_cast<size_t>(within % 4);
  return {.byte = byte + static_cast<size_t>(plane / planes_per_line) * 64,
          .shift = narrow.low_bits * (plane % planes_per_line),
          .high_byte = narrow.high_bits == 0 ? 0 : byte + static_cast<size_t>(narrow.num_low) * 64,
          .high_shift = narrow.high_bits * plane,
          .high_bits = narrow.high_bits};
}

uint32_t LoadCode(const uint8_t* lines, KvCacheDtype dtype, const CodeAddress& address) {
  if (CodeBits(dtype) < 8) {
    const int low_bits = CodeBits(dtype) - address.high_bits;
    const uint32_t low = (uint32_t{lines[address.byte]} >> address.shift) & ((1u << low_bits) - 1);
    const uint32_t high = (uint32_t{lines[address.high_byte]} >> address.high_shift) &
                          ((1u << address.high_bits) - 1);
    return low | high << low_bits;
  }
  uint32_t bits = 0;
  for (int i = 0; i < CodeBits(dtype) / 8; ++i) {
    bits |= static_cast<uint32_t>(lines[address.byte + static_cast<size_t>(i)]) << (8 * i);
  }
  return bits;
}

void StoreCode(uint8_t* lines, KvCacheDtype dtype, const CodeAddress& address, uint32_t bits) {
  const auto put = [lines](size_t byte, int shift, int num_bits, uint32_t value) {
    const uint32_t mask = ((1u << num_bits) - 1) << shift;
    lines[byte] = static_cast<uint8_t>((lines[byte] & ~mask) | (value << shift & mask));
  };
  if (CodeBits(dtype) < 8) {
    const int low_bits = CodeBits(dtype) - address.high_bits;
    put(address.byte, address.shift, low_bits, bits);
    if (address.high_bits > 0) {
      put(address.high_byte, address.high_shift, address.high_bits, bits >> low_bits);
    }
    return;
  }
  for (int i = 0; i < CodeBits(dtype) / 8; ++i) {
    lines[address.byte + static_cast<size_t>(i)] = static_cast<uint8_t>(bits >> (8 * i));
  }
}

void EncodeTile(const EncodeArgs& args) {
  CheckShape(args.shape, args.spec);
  const auto [side, num_tokens, head_dim] = args.shape;
  const KvCacheDtype dtype = args.spec.dtype;
  const int group_size = args.spec.ChannelsPerScale(head_dim);
  int64_t end_codes = 0;
  for (int token = 0; token < num_tokens; ++token) {
    const float* const row = args.x + static_cast<size_t>(token) * static_cast<size_t>(head_dim);
    CodeScale scale;
    for (int channel = 0; channel < head_dim; ++channel) {
      if (!IsPerToken(args.spec.granularity)) {
        scale = SharedScale(args.spec, args.static_scales, channel);
      } else if (args.spec.HasByteScales()) {
        scale = MakeScale(HalfToFloat(args.scales[token]));
      } else if (channel % group_size == 0) {
        const AsymScale fit = FitGroup(dtype, {row + channel, static_cast<size_t>(group_size)});
        const size_t index = static_cast<size_t>(channel / group_size * num_tokens + token);
        args.scales[index] = fit.scale;
        if (args.spec.HasZeroPoint()) args.zero_points[index] = fit.zero_point;
        scale = MakeScale(HalfToFloat(fit.scale), HalfToFloat(fit.zero_point));
      }
      const uint32_t bits = EncodeValue(dtype, side, row[channel], scale);
      StoreCode(args.lines, dtype, AddressOf(dtype, args.shape, token, channel), bits);
      end_codes += IsEndCode(dtype, side, bits) ? 1 : 0;
    }
  }
  if (args.end_codes != nullptr) *args.end_codes += end_codes;
}

void DecodeTile(const DecodeArgs& args) {
  CheckShape(args.shape, args.spec);
  const auto [side, num_tokens, head_dim] = args.shape;
  const KvCacheDtype dtype = args.spec.dtype;
  const int group_size = args.spec.ChannelsPerScale(head_dim);
  for (int token = 0; token < num_tokens; ++token) {
    for (int channel = 0; channel < head_dim; ++channel) {
      CodeScale scale = SharedScale(args.spec, args.static_scales, channel);
      if (IsPerToken(args.spec.granularity)) {
        const size_t index = static_cast<size_t>(channel / group_size * num_tokens + token);
        scale.scale = HalfToFloat(args.scales[index]);
        if (args.spec.HasZeroPoint()) scale.zero_point = HalfToFloat(args.zero_points[index]);
      }
      const uint32_t bits =
          LoadCode(args.lines, dtype, AddressOf(dtype, args.shape, token, channel));
      args.x[static_cast<size_t>(token) * static_cast<size_t>(head_dim) +
             static_cast<size_t>(channel)] = DecodeValue(dtype, side, bits, scale);
    }
  }
}

}  // namespace turboquant
