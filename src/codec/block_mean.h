// The mean of a block's keys per channel, kept in the block and taken off before they are encoded
// (transform centered): what all tokens of a block share costs no code bits. q . k is then
// q . mean + q . (k - mean), and the first term is one number per query row and block.
//
//   m[c] = (x[0][c] + x[1][c] + ...) / num_tokens     over the block's tokens in order, in f32
//   scale = f16(min(amax / M, 65504)), amax over channels, M = 127 (8 bits) or 7 (4 bits)
//   code[c] = clamp(rint(m[c] / scale), -M, M)        by 1 / scale as in codec/tile.h
//   x[t][c] -= scale * code[c]                        the mean as stored: its rounding is not lost
//
// 8-bit codes are stored as s8 [head_dim]; 4-bit ones as code + 8, of 16 channels in 8 bytes:
// channel 16j + i in the low nibble of byte 8j + i, channel 16j + 8 + i in the high one. Measured
// in docs/decisions/005-block-mean-and-narrow-formats.md.
#ifndef TURBOQUANT_CODEC_BLOCK_MEAN_H_
#define TURBOQUANT_CODEC_BLOCK_MEAN_H_

#include <cstddef>
#include <cstdint>

#include "codec/kv_cache_dtype.h"

namespace turboquant {

// 8 bits beside codes of 8, else 4.
constexpr int MeanBits(KvCacheDtype dtype) { return CodeBits(dtype) == 8 ? 8 : 4; }
constexpr size_t MeanBytes(KvCacheDtype dtype, int head_dim) {
  return static_cast<size_t>(head_dim) * static_cast<size_t>(MeanBits(dtype)) / 8;
}

struct CenterArgs {
  float* x;  // [num_tokens][head_dim], finite; in: keys, out: keys less the stored mean
  int num_tokens, head_dim;
  int mean_bits;    // 8 or 4
  uint8_t* codes;   // out: [head_dim * mean_bits / 8]
  uint16_t* scale;  // out: f16
};
void CenterKeys(const CenterArgs& args);

// Code of one channel as stored.
int MeanCode(const uint8_t* codes, int mean_bits, int channel);

struct MeanDotArgs {
  const float* q;  // num_rows rows of [head_dim], q_stride floats apart
  size_t q_stride;
  int num_rows, head_dim;
  int mean_bits;
  const uint8_t* codes;
  float scale;  // of the mean's codes, times whatever the dot product is to be multiplied with
  float* out;   // [num_rows]: scale * sum_c q[r][c] * code[c]; the sum in any order
};
void MeanDot(const MeanDotArgs& args);

}  // namespace turboquant

#endif  // TURBOQUANT_CODEC_BLOCK_MEAN_H_
