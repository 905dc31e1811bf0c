// Scales of one byte per token and head (granularity per_token_head_u8), fitted to a whole tile.
//
// A scale is an 8-bit float without sign, 4 bits of exponent over 4 of mantissa, times an f16 that
// the tile's tokens share:
//   small(code) = (1 + (code & 15) / 16) * 2^((code >> 4) - 14)        2^-14 .. 3.875
//   scale       = f16(base * small(code))                              what codes are made with
//
// Fitting a tile:
//   ideal_t of int8:    amax_t / 127
//   ideal_t of narrow:  rms_t / levels_per_rms (codec/narrow.h), rms_t = sqrt(sum / head_dim)
//   base = f16(min(max_t ideal_t, 16384))
//   ratio_t = min(ideal_t / base, 3.875), 0 where base is 0
//   int8:    the smallest code with small(code) >= ratio_t: nothing but rounding is clipped
//   narrow:  of the codes n - 7 .. n + 7, n the one nearest to ratio_t, the one with the least
//            squared error of the tile's row (the smallest of equals); 0 where the row is all zero
// amax_t, rms_t and errors are taken over finite values, others count as 0. A sum over channels is taken in
// eight partial sums, channel c in number c % 8, which are added as ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
// All arithmetic is IEEE f32, one operation at a time, as in codec/tile.h.
#ifndef TURBOQUANT_CODEC_SCALE_FIT_H_
#define TURBOQUANT_CODEC_SCALE_FIT_H_

#include <bit>
#include <cstdint>

#include "codec/kv_cache_dtype.h"

namespace turboquant {

inline constexpr float kMaxSmallScale = 3.875f;
inline constexpr float kMaxScaleBase = 16384.0f;
inline constexpr int kScaleSearchSteps = 7;  // to either side

constexpr float SmallScale(uint8_t code) {
  return std::bit_cast<float>((static_cast<uint32_t>(code) << 19) + (113u << 23));
}

struct FitScalesArgs {
  KvCacheDtype dtype;  // int8 or narrow
  const float* x;      // [num_tokens][head_dim]
  int num_tokens, head_dim;
  uint8_t* codes;    // out: [num_tokens]
  uint16_t* base;    // out: f16
  uint16_t* scales;  // out: f16 [num_tokens], as ExpandScales makes them
};
// The specification; kernels give the same bits.
void FitScales(const FitScalesArgs& args);

struct ExpandScalesArgs {
  const uint8_t* codes;  // [num_tokens]
  uint16_t base;         // f16
  int num_tokens;        // a multiple of 16
  uint16_t* scales;      // f16 [num_tokens]
};
void ExpandScales(const ExpandScalesArgs& args);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_SCALE_FIT_H_
