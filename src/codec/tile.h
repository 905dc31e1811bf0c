// Plain encode and decode of one tile: one side (K or V) of one KV head of one block. This is the specification that the
// encode kernels must equal bit for bit. Rules (docs/formats/):
//   int8:  scale = f16(amax / 127); code = clamp(rint(x * (1 / scale)), -127, 127)          amax over finite values
//   int4:  scale = f16(amax / 7);   code = clamp(rint(x * (1 / scale)), -7, 7)
//   int4_asym: scale = f16((max - min) / 15); zero point = f16(-min / scale); code = clamp(rint(x * (1/scale) + zp), 0, 15)
//   fp8:   code = nearest even of x * (1 / scale), saturating; dynamic scale = f16(amax / 448 or 57344), none = 1
// rint is round half to even. A scale that rounds to 0 gives codes of value 0 (inv_scale = 0); one above 65504 is clamped
// to it. NaN is stored as 0; +-Inf saturates. Static scales are used as given (f32).
#ifndef TURBOQUANT_CODEC_TILE_H_
#define TURBOQUANT_CODEC_TILE_H_

#include <cstdint>

#include "codec/kv_cache_spec.h"

namespace turboquant {

struct TileShape {
  KvSide side;
  int num_tokens;  // block_size; a multiple of 16
  int head_dim;    // a multiple of 16
};

struct EncodeArgs {
  TileShape shape;
  KvSideSpec spec;
  const float* x;           // [num_tokens][head_dim], values already rounded to the exact format
  HeadScales static_scales;  // read for static granularities only
  uint8_t* lines;           // [num_tokens * head_dim * CodeBits / 8], 64-byte aligned
  uint16_t* scales;         // f16 [num_groups][num_tokens], dynamic granularities only
  uint16_t* zero_points;    // f16 [num_groups][num_tokens], int4_asym only
  int64_t* end_codes;       // += number of codes at the ends of the range (saturation watch); may be null
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

// Position of one code inside the lines of a tile. For 4-bit codes `shift` is 0 or 4.
struct CodeAddress {
  size_t byte;
  int shift;
};
CodeAddress AddressOf(KvCacheDtype dtype, const TileShape& shape, int token, int channel);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_TILE_H_
