// Plain encode and decode of one tile: one side (K or V) of one KV head of one block. This is the
// specification that the encode kernels must equal bit for bit. All arithmetic is IEEE f32, one
// operation at a time (no fused multiply-add, no reciprocal approximation, subnormals kept), round
// to nearest even; rint is round half to even; f16() is FloatToHalf.
//
// Scale of one row or group (dynamic granularities); amax, min and max run over the finite values,
// 0 if there is none; / is a division, never a product with 1/127:
//   int8:       scale = f16(min(amax / 127, 65504))
//   int4_sym:   scale = f16(min(amax / 7, 65504))
//   fp8_e4m3:   scale = f16(min(amax / 448, 65504))
//   fp8_e5m2:   scale = f16(min(amax / 57344, 65504))
//   int4_asym:  range = max - min
//               scale = f16(min(range > 0 ? range / 15 : |min|, 65504))
//               zero_point = scale > 0 ? f16(clamp((0 - min) / scale, -65504, 65504)) : 0
//               (0 - min is never -0)
// From here on scale and zero_point mean the f16 values, widened to f32. A constant group is thus
// stored exactly: range = 0, scale = |min|, zero_point = -1 or 1, code 0.
// Static granularities use the f32 scale given (per channel: channels[c], else head), kNone uses 1,
// per_token_head_u8 the f16 scales given (codec/scale_fit.h makes them from the whole tile).
//
//   inv_scale = scale > 0 ? 1 / scale : 0
//   p = x * inv_scale;  if p is NaN, p = 0           (x NaN, or x infinite under scale 0)
//   int8:       code = clamp(rint(p), -127, 127)
//   int4_sym:   code = clamp(rint(p), -7, 7)
//   int6..int2: codec/narrow.h
//   int4_asym:  code = clamp(rint(p + zero_point), 0, 15), the sum rounded by itself
//   fp8:        code = nearest FP8 value, ties to even mantissa, of p clamped to +-448 or +-57344;
//               -0 stays -0
//   f32, f16, bf16: no scale; the conversions of base/half.h, infinities and NaN included
// So NaN is stored as 0 (int4_asym: the code nearest to 0), +-Inf saturates, a scale that rounds to
// 0 stores zeros.
//
// Decoding, each operation rounded:
//   int8, int4_sym, fp8: x = scale * code          int4_asym: x = scale * (code - zero_point)
//   int6..int2: x = scale * level
//
// End codes (saturation watch): |code| = 127 or 7; the outermost levels; 0 and 15 for int4_asym;
// +-448 or +-57344 for fp8; none otherwise.
#ifndef TURBOQUANT_CODEC_TILE_H_
#define TURBOQUANT_CODEC_TILE_H_

#include <cstddef>
#include <cstdint>

#include "codec/kv_cache_spec.h"

namespace turboquant {

struct TileShape {
  KvSide side;
  int num_tokens;  // block_size; a multiple of 16
  int head_dim;    // a multiple of 16
};

// Bytes of the lines of a tile.
constexpr size_t LineBytes(KvCacheDtype dtype, const TileShape& shape) {
  return static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.head_dim) *
         static_cast<size_t>(CodeBits(dtype)) / 8;
}

struct EncodeArgs {
  TileShape shape;
  KvSideSpec spec;
  const float* x;            // [num_tokens][head_dim], values already rounded to the exact format
  HeadScales static_scales;  // read for static granularities only
  uint8_t* lines;            // [LineBytes(dtype, shape)], 64-byte aligned; every byte is written
  // f16 [num_groups][num_tokens], dynamic granularities only; per_token_head_u8: read, else written
  uint16_t* scales;
  uint16_t* zero_points;  // f16 [num_groups][num_tokens], int4_asym only
  int64_t* end_codes;     // += number of end codes; may be null
};
void EncodeTile(const EncodeArgs& args);

struct DecodeArgs {
  TileShape shape;
  KvSideSpec spec;
  const uint8_t* lines;
  const uint16_t* scales;
  const uint16_t* zero_points;
  HeadScales static_scales;
  float* x;  // [num_tokens][head_dim]
};
void DecodeTile(const DecodeArgs& args);

// Position of one code inside the lines of a tile: its first byte (little endian where there are
// several) and, for codes of less than a byte, the shift of its bits. A code of a narrow format
// with two parts has the bits above the first part elsewhere; high_bits is 0 otherwise.
struct CodeAddress {
  size_t byte = 0;
  int shift = 0;
  size_t high_byte = 0;
  int high_shift = 0, high_bits = 0;
  bool operator==(const CodeAddress&) const = default;
};
CodeAddress AddressOf(KvCacheDtype dtype, const TileShape& shape, int token, int channel);
// The bits of a code at its address, in the low CodeBits; storing leaves other bits alone.
uint32_t LoadCode(const uint8_t* lines, KvCacheDtype dtype, const CodeAddress& address);
void StoreCode(uint8_t* lines, KvCacheDtype dtype, const CodeAddress& address, uint32_t bits);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_TILE_H_
