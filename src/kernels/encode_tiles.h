// Encoding of a tile for the vector kernels: what does not depend on the instruction set. A tile is
// worked through in strips of as many tokens as a V lane holds (one token for K): each row is
// quantized to stored bytes, then the bytes are moved into the lines.
//
// Everything is a member of a template over a type from an unnamed namespace of a kernel folder, so
// that each folder gets code of its own, compiled with its own flags. Isa provides
//   GroupScale: scale and zero_point as f16, inverse and zero as float
//   int QuantizeGroup<Quantizer, kKey>(x, n, given, fit, bytes): codes of n channels, one byte
//   each,
//     of x times given[c], or times fit.inverse where given is null, and fit.zero; returns how many
//     are end codes
//   float InverseOf(uint16_t scale) of an f16
//   void JoinKeyNibbles(row, head_dim)    codes of 8 channels in 8 bytes to the 4 bytes of a K lane
//   void StoreValueRows<kBits>(rows, head_dim, line)    4 (8-bit) or 8 (4-bit) tokens of one lane
//   void ConvertRow<Half>(x, head_dim, row)             f32 to 16-bit values
//   void StoreValuePairs(rows, head_dim, line)          two tokens of 16-bit values to lines
#ifndef TURBOQUANT_KERNELS_ENCODE_TILES_H_
#define TURBOQUANT_KERNELS_ENCODE_TILES_H_

#include <cstddef>
#include <cstdint>

#include "codec/tile.h"
#include "kernels/kernel_table.h"

namespace turboquant {

template <typename Isa>
class TileEncoder {
 public:
  static constexpr int kLanes = 16, kLineBytes = 64;
  using Row = uint8_t[4 * kMaxHeadDim];  // bytes of one token

  // What holds for all rows of a tile.
  struct Scales {
    bool dynamic = false;
    bool given = false;  // byte scales: one per token, in args.scales
    int group_size = 0;
    alignas(64) float inverse[kMaxHeadDim];  // static granularities and none
  };

  // Formats of 8 bits and fewer with a scale of their own.
  template <typename Quantizer>
  static void EncodeCodes(const EncodeArgs& args) {
    const Scales scales = ScalesOf(args);
    const int64_t ends = args.shape.side == KvSide::kKey ? EncodeKey<Quantizer>(args, scales)
                                                         : EncodeValue<Quantizer>(args, scales);
    if (args.end_codes != nullptr) *args.end_codes += ends;
  }

  // Half: what ConvertRow takes.
  template <typename Half>
  static void EncodeHalves(const EncodeArgs& args) {
    const int head_dim = args.shape.head_dim;
    Row rows[2];
    for (int token = 0; token < args.shape.num_tokens; token += 2) {
      const float* x = args.x + Index(token) * Index(head_dim);
      Isa::template ConvertRow<Half>(x, head_dim, rows[0]);
      Isa::template ConvertRow<Half>(x + head_dim, head_dim, rows[1]);
      if (args.shape.side == KvSide::kKey) {
        ScatterKey(args, token, rows[0], head_dim / 2);
        ScatterKey(args, token + 1, rows[1], head_dim / 2);
      } else {
        Isa::StoreValuePairs(rows, head_dim, args.lines + Index(token) * Index(head_dim) * 2);
      }
    }
  }

  static void EncodeFloats(const EncodeArgs& args) {
    const size_t head_dim = Index(args.shape.head_dim);
    if (args.shape.side ==
        KvSide::kValue) {  // a line is 16 channels of one token: rows as they are
      __builtin_memcpy(args.lines, args.x, Index(args.shape.num_tokens) * head_dim * sizeof(float));
      return;
    }
    for (int token = 0; token < args.shape.num_tokens; ++token) {
      const float* row = args.x + Index(token) * head_dim;
      ScatterKey(args, token, reinterpret_cast<const uint8_t*>(row), args.shape.head_dim);
    }
  }

 private:
  static size_t Index(int n) { return static_cast<size_t>(n); }

  static Scales ScalesOf(const EncodeArgs& args) {
    const ScaleGranularity granularity = args.spec.granularity;
    Scales scales;
    scales.given = granularity == ScaleGranularity::kPerTokenHeadU8;
    scales.dynamic = scales.given || granularity == ScaleGranularity::kPerTokenHead ||
                     granularity == ScaleGranularity::kPerGroup;
    scales.group_size =
        granularity == ScaleGranularity::kPerGroup ? args.spec.group_size : args.shape.head_dim;
    if (scales.dynamic) return scales;
    const bool none = granularity == ScaleGranularity::kNone;
    const float* channels = args.static_scales.channels;
    for (int c = 0; c < args.shape.head_dim; ++c) {
      const float scale = channels != nullptr ? channels[c] : args.static_scales.head;
      scales.inverse[c] = none ? 1.0f : scale > 0.0f ? 1.0f / scale : 0.0f;
    }
    return scales;
  }

  // Puts dword i of a token's row into line i of its group of 16 tokens.
  static void ScatterKey(const EncodeArgs& args, int token, const uint8_t* row, int num_lines) {
    uint8_t* lane = args.lines + Index(token / kLanes) * Index(num_lines) * kLineBytes +
                    Index(token % kLanes) * 4;
    for (int i = 0; i < num_lines; ++i) {
      __builtin_memcpy(lane + Index(i) * kLineBytes, row + 4 * i, 4);
    }
  }

  // Returns the number of codes at the ends of the range.
  template <typename Quantizer, bool kKey>
  static int EncodeRow(const EncodeArgs& args, const Scales& scales, int token, uint8_t* bytes) {
    const float* row = args.x + Index(token) * Index(args.shape.head_dim);
    int ends = 0;
    for (int group = 0; group * scales.group_size < args.shape.head_dim; ++group) {
      const int begin = group * scales.group_size;
      typename Isa::GroupScale fit;
      if (scales.given) {
        fit.inverse = Isa::InverseOf(args.scales[token]);
      } else if (scales.dynamic) {
        fit = Quantizer::Fit(row + begin, scales.group_size);
        const size_t index = Index(group) * Index(args.shape.num_tokens) + Index(token);
        args.scales[index] = fit.scale;
        if (args.spec.dtype == KvCacheDtype::kInt4Asym) args.zero_points[index] = fit.zero_point;
      }
      ends += Isa::template QuantizeGroup<Quantizer, kKey>(
          row + begin, scales.group_size, scales.dynamic ? nullptr : scales.inverse + begin, fit,
          bytes + begin);
    }
    return ends;
  }

  template <typename Quantizer>
  static int64_t EncodeKey(const EncodeArgs& args, const Scales& scales) {
    int64_t ends = 0;
    Row row;
    for (int token = 0; token < args.shape.num_tokens; ++token) {
      ends += EncodeRow<Quantizer, true>(args, scales, token, row);
      if constexpr (Quantizer::kBits == 4) Isa::JoinKeyNibbles(row, args.shape.head_dim);
      ScatterKey(args, token, row, args.shape.head_dim * Quantizer::kBits / 32);
    }
    return ends;
  }

  template <typename Quantizer>
  static int64_t EncodeValue(const EncodeArgs& args, const Scales& scales) {
    constexpr int kTokens = 32 / Quantizer::kBits;
    int64_t ends = 0;
    Row rows[kTokens];
    const size_t bytes_per_strip = Index(args.shape.head_dim / kLanes) * kLineBytes;
    for (int token = 0; token < args.shape.num_tokens; token += kTokens) {
      for (int i = 0; i < kTokens; ++i) {
        ends += EncodeRow<Quantizer, false>(args, scales, token + i, rows[i]);
      }
      Isa::template StoreValueRows<Quantizer::kBits>(
          rows, args.shape.head_dim, args.lines + Index(token / kTokens) * bytes_per_strip);
    }
    return ends;
  }
};

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_ENCODE_TILES_H_
