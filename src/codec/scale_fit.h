// Scales of one byte per token and head (granularity per_token_head_u8), fitted to a whole tile.
//
// A scale is an f16 with four bits of mantissa, stored as its distance from a bias that the tile's
// tokens share, so that expanding takes a shift and an addition of 16-bit integers:
//
//   bits of the f16 = clamp(64 * code + bias, 0, 0x7BFF)     16 codes to a power of two
//
// Fitting a tile; h(x) are the bits of x as f16, taken as an integer:
//   ideal_t of int8:    amax_t / 127
//   ideal_t of narrow:  rms_t / levels_per_rms (codec/narrow.h), rms_t = sqrt(sum of squares /
//   head_dim) h_t = h(min(ideal_t, 65504)) bias = 64 * (floor((max_t h_t + 32) / 64) - 247): the
//   largest ideal scale has the code 247 or nearly int8:    the smallest code whose scale is not
//   below: ceil((h_t - bias) / 64) narrow:  n = floor((h_t - bias + 32) / 64), the nearest; of the
//   codes n - 7 .. n + 7 the one with the least
//            squared error of the row (the smallest of equals); n where ideal_t is 0
//   every code within 0 .. 255
// amax_t, rms_t and errors are taken over finite values, others count as 0. A sum over channels is
// taken in eight partial sums, channel c in number c % 8, which are added as ((0 + 4) + (2 + 6)) +
// ((1 + 5) + (3 + 7)). All arithmetic is IEEE f32, one operation at a time, as in codec/tile.h.
#ifndef TURBOQUANT_CODEC_SCALE_FIT_H_
#define TURBOQUANT_CODEC_SCALE_FIT_H_

#include <cstdint>

#include "codec/kv_cache_dtype.h"

namespace turboquant {

inline constexpr int kScaleCodeStep = 64;      // f16 bits between neighbouring codes
inline constexpr int kLargestScaleCode = 247;  // of a tile's largest ideal scale
inline constexpr int kScaleSearchSteps = 7;    // to either side
inline constexpr int kMaxHalfBits = 0x7BFF;

struct FitScalesArgs {
  KvCacheDtype dtype;        // int8 or narrow
  const float* x;            // [num_tokens][head_dim]
  int num_tokens, head_dim;  // at most kMaxBlockTokens; a multiple of 16
  uint8_t* codes;            // out: [num_tokens]
  int16_t* bias;             // out
  uint16_t* scales;          // out: f16 [num_tokens], as ExpandScales makes them
};
// The specification; kernels give the same bits.
void FitScales(const FitScalesArgs& args);

struct ExpandScalesArgs {
  const uint8_t* codes;  // [num_tokens]
  int16_t bias;
  int num_tokens;    // a multiple of 16
  uint16_t* scales;  // f16 [num_tokens]
};
void ExpandScales(const ExpandScalesArgs& args);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_SCALE_FIT_H_
