// How x86 kernels multiply codes of the narrow formats (codec/narrow.h): as bytes, a line's codes
// looked up by vpshufb where the levels are a table.
//
//   level = kMult * byte - kBias
//   int2, int3, int4   K: byte = level + 32 (1..63), V: byte = level
//   int5               byte = code (0..31), level = 2 * code - 31
//   int6               K: byte = code (0..63), level = 2 * code - 63
//                      V: byte = code - 32, level = 2 * byte + 1
//
// Constants only: a function here would be shared by folders with different instruction sets.
#ifndef TURBOQUANT_KERNELS_NARROW_BYTES_H_
#define TURBOQUANT_KERNELS_NARROW_BYTES_H_

#include <cstdint>

#include "codec/narrow.h"

namespace turboquant {

template <KvCacheDtype kDtype, bool kKey>
struct NarrowBytes {
  static constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  static constexpr bool kTable = kFormat.bits <= 4;
  static constexpr int kMult = kTable ? 1 : 2;
  static constexpr int kBias = kTable ? (kKey ? 32 : 0) : kFormat.bits == 5 ? 31 : kKey ? 63 : -1;
};

// The bytes of all codes of a table format, again and again for every 16 bytes of a register.
template <KvCacheDtype kDtype, bool kKey, int kRegisterBytes>
struct LevelBytes {
  alignas(kRegisterBytes) int8_t bytes[kRegisterBytes] = {};
  constexpr LevelBytes() {
    constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
    for (int i = 0; i < kRegisterBytes; ++i) {
      bytes[i] = static_cast<int8_t>(kFormat.Level(i % (2 * kFormat.half)) +
                                     NarrowBytes<kDtype, kKey>::kBias);
    }
  }
};

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_NARROW_BYTES_H_
