// Reading the lines of a tile code by code (layout: codec/kv_cache_spec.h), and the form of
// prepared queries.
#ifndef TURBOQUANT_KERNELS_SCALAR_LINES_H_
#define TURBOQUANT_KERNELS_SCALAR_LINES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "codec/fp8.h"
#include "codec/narrow.h"
#include "kernels/kernel_table.h"

namespace turboquant::scalar {

inline constexpr int kLanes = 16;      // lanes of a line: tokens of K, channels of V
inline constexpr int kLineBytes = 64;  // a lane is 4 bytes

// What a code is before scales apply: the integer (int4_asym: 0..15, narrow formats: the level), or
// the float that it stands for.
template <KvCacheDtype kDtype>
using CodeType = std::conditional_t<IsInteger(kDtype), int, float>;

// Lines that belong together, and the codes that a lane has in them.
template <KvCacheDtype kDtype>
inline constexpr int kLinesPerUnit = IsNarrow(kDtype) ? NarrowFormatOf(kDtype).num_lines : 1;
template <KvCacheDtype kDtype>
inline constexpr int kCodesPerLane =
    IsNarrow(kDtype) ? NarrowFormatOf(kDtype).CodesPerLane() : 32 / CodeBits(kDtype);
template <KvCacheDtype kDtype>
inline constexpr size_t kUnitBytes = size_t{kLinesPerUnit<kDtype>} * kLineBytes;

// Level of code i of one lane; `lane` lies in the unit's first line.
template <KvCacheDtype kDtype>
int NarrowLevelAt(const uint8_t* lane, int i) {
  constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  constexpr int kPlanesPerLine = 8 / kFormat.low_bits;
  const int plane = i / 4, byte = i % 4;
  const int low = lane[plane / kPlanesPerLine * kLineBytes + byte] >>
                      kFormat.low_bits * (plane % kPlanesPerLine) &
                  ((1 << kFormat.low_bits) - 1);
  int high = 0;
  if constexpr (kFormat.high_bits > 0) {
    high = lane[kFormat.num_low * kLineBytes + byte] >> kFormat.high_bits * plane &
           ((1 << kFormat.high_bits) - 1);
  }
  return kFormat.Level(low | high << kFormat.low_bits);
}

// Code i of one lane.
template <KvCacheDtype kDtype, KvSide kSide>
CodeType<kDtype> CodeAt(const uint8_t* lane, int i) {
  if constexpr (kDtype == KvCacheDtype::kF32) {
    float value;
    std::memcpy(&value, lane, sizeof(value));
    return value;
  } else if constexpr (kDtype == KvCacheDtype::kF16) {
    return HalfToFloat(static_cast<uint16_t>(lane[2 * i] | lane[2 * i + 1] << 8));
  } else if constexpr (kDtype == KvCacheDtype::kBf16) {
    return Bf16ToFloat(static_cast<uint16_t>(lane[2 * i] | lane[2 * i + 1] << 8));
  } else if constexpr (kDtype == KvCacheDtype::kInt8) {
    return kSide == KvSide::kKey ? lane[i] - 128 : static_cast<int8_t>(lane[i]);
  } else if constexpr (kDtype == KvCacheDtype::kFp8E4m3) {
    return Fp8E4m3ToFloat(lane[i]);
  } else if constexpr (kDtype == KvCacheDtype::kFp8E5m2) {
    return Fp8E5m2ToFloat(lane[i]);
  } else if constexpr (IsNarrow(kDtype)) {
    return NarrowLevelAt<kDtype>(lane, i);
  } else {
    const int nibble = i < 4 ? lane[i] & 15 : lane[i - 4] >> 4;
    return kDtype == KvCacheDtype::kInt4Sym ? nibble - 8 : nibble;
  }
}

// Integer formats: codes, then the row's scale, then the sum of the codes of each group. Float
// formats: q' as it is.
struct IntegerQ {
  int16_t* codes;  // [head_dim]
  float* scale;    // [1]
  int32_t* sums;   // [num_groups]

  IntegerQ(void* prepared, int row, int head_dim, int group_size) {
    auto* base = static_cast<uint8_t*>(prepared) +
                 static_cast<size_t>(row) * PreparedQBytes(head_dim, group_size);
    codes = reinterpret_cast<int16_t*>(base);
    scale = reinterpret_cast<float*>(base + 2 * static_cast<size_t>(head_dim));
    sums = reinterpret_cast<int32_t*>(scale + 1);
  }
};

inline float* FloatQ(void* prepared, int row, int head_dim, int group_size) {
  return reinterpret_cast<float*>(static_cast<uint8_t*>(prepared) +
                                  static_cast<size_t>(row) * PreparedQBytes(head_dim, group_size));
}

}  // namespace turboquant::scalar

#endif  // TURBOQUANT_KERNELS_SCALAR_LINES_H_
