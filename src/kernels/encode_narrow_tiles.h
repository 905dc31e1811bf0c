// Encoding of the narrow formats for the vector kernels: what does not depend on the instruction
// set. Rows become bytes, four tokens or channels of 16 lanes become the words of a plane, and
// planes are packed into the lines of a unit. As in kernels/encode_tiles.h everything is a member
// of a template. Isa provides
//   int CodeRow<kDtype>(row, n, inverse, bytes)    codes of a row, one byte each; returns how many
//                                                  are outermost ones
//   float FromHalf(uint16_t)
//   Plane                                          4 codes of a byte for each of 16 lanes
//   void KeyPlane(tokens, channel, plane)          four channels from `channel` on of 16 tokens
//   void ValuePlane(tokens, channel, plane)        16 channels from `channel` on of four tokens
//   void PackUnit<kDtype>(planes, unit)
#ifndef TURBOQUANT_KERNELS_ENCODE_NARROW_TILES_H_
#define TURBOQUANT_KERNELS_ENCODE_NARROW_TILES_H_

#include <cstddef>
#include <cstdint>

#include "codec/narrow.h"
#include "codec/tile.h"
#include "kernels/kernel_table.h"

namespace turboquant {

template <typename Isa>
class NarrowTileEncoder {
 public:
  static constexpr int kLanes = 16, kLineBytes = 64;
  using Row = uint8_t[kMaxHeadDim];  // codes of one token

  static void Encode(const EncodeArgs& args) {
    const KvCacheDtype dtype = args.spec.dtype;
    if (dtype == KvCacheDtype::kInt6) return Encode<KvCacheDtype::kInt6>(args);
    if (dtype == KvCacheDtype::kInt5) return Encode<KvCacheDtype::kInt5>(args);
    if (dtype == KvCacheDtype::kInt4) return Encode<KvCacheDtype::kInt4>(args);
    if (dtype == KvCacheDtype::kInt3) return Encode<KvCacheDtype::kInt3>(args);
    Encode<KvCacheDtype::kInt2>(args);
  }

 private:
  template <KvCacheDtype kDtype>
  static void Encode(const EncodeArgs& args) {
    const int64_t ends = args.shape.side == KvSide::kKey ? EncodeSide<kDtype, true>(args)
                                                         : EncodeSide<kDtype, false>(args);
    if (args.end_codes != nullptr) *args.end_codes += ends;
  }

  // Codes of kRows tokens from `first` on; returns the number of outermost ones.
  template <KvCacheDtype kDtype, int kRows>
  static int64_t CodeRows(const EncodeArgs& args, int first, Row (&bytes)[kRows]) {
    const int head_dim = args.shape.head_dim;
    int64_t ends = 0;
    for (int t = 0; t < kRows; ++t) {
      const float* row = args.x + static_cast<size_t>(first + t) * static_cast<size_t>(head_dim);
      const float scale = Isa::FromHalf(args.scales[first + t]);
      const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
      ends += Isa::template CodeRow<kDtype>(row, head_dim, inverse, bytes[t]);
    }
    return ends;
  }

  // Lanes are tokens of K and channels of V; a unit's planes hold the other of the two, four a
  // plane.
  template <KvCacheDtype kDtype, bool kKey>
  static int64_t EncodeSide(const EncodeArgs& args) {
    constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
    constexpr int kTokens = kKey ? kLanes : kFormat.CodesPerLane();
    constexpr int kChannels = kKey ? kFormat.CodesPerLane() : kLanes;
    Row bytes[kTokens];
    typename Isa::Plane planes[kFormat.num_planes];
    uint8_t* unit = args.lines;
    int64_t ends = 0;
    for (int first = 0; first < args.shape.num_tokens; first += kTokens) {
      ends += CodeRows<kDtype>(args, first, bytes);
      for (int channel = 0; channel < args.shape.head_dim; channel += kChannels) {
        for (int p = 0; p < kFormat.num_planes; ++p) {
          if constexpr (kKey) {
            Isa::KeyPlane(bytes, channel + 4 * p, &planes[p]);
          } else {
            Isa::ValuePlane(bytes + 4 * p, channel, &planes[p]);
          }
        }
        Isa::template PackUnit<kDtype>(planes, unit);
        unit += kFormat.num_lines * kLineBytes;
      }
    }
    return ends;
  }
};

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_ENCODE_NARROW_TILES_H_
