// How the lines of the integer formats are multiplied: the inner loop shared by QK and PV.
//
// Both products have one shape. For 16 lanes (tokens of K, channels of V), units of lines and their
// planes (a plane: four codes of a byte per lane, codec/narrow.h):
//   acc[row][lane] += sum over the plane's four codes of byte * factor[row]
// which is one sdot (K, factors q) or udot (V, factors p) for four lanes, the factors broadcast.
// A format says how a plane's bytes come out of its lines, as byte = code (or level) + kBias; what
// the bias adds is taken back in the accumulators' start, -kBias * (sum of the row's factors). One
// plane serves all rows of a block, and all terms of a factor (prepared_q.h).
//
//   int8        K is stored + 128, V two's complement: one eor with 128 makes what is wanted, a
//               signed K and V + 128
//   int4_sym    nibbles by mask and shift; stored + 8
//   int4_asym   the same, as they are; zero points come at the end
//   int6..int2  narrow.h
#ifndef TURBOQUANT_KERNELS_NEONDOTPROD_FORMATS_H_
#define TURBOQUANT_KERNELS_NEONDOTPROD_FORMATS_H_

#include "kernels/neondotprod/vec.h"

namespace turboquant::neondotprod {

// Rows in a block where factors have 16 bits: 3 x 2 terms x 4 = 24 accumulators of the 32
// registers.
inline constexpr int kMaxRowsOfTerms = 3;
inline constexpr int kMaxRows = 4;  // elsewhere: 16 accumulators

// kKey: factors are signed bytes, one term or two; else unsigned bytes.
template <bool kIsKey>
struct SideFactor {
  using Type = int8_t;
};
template <>
struct SideFactor<false> {
  using Type = uint8_t;
};

template <bool kIsKey>
struct Int8Lines {
  static constexpr bool kKey = kIsKey;
  static constexpr int kTerms = kKey ? 2 : 1;
  static constexpr int kMaxBlockRows = kKey ? kMaxRowsOfTerms : kMaxRows;
  static constexpr int kPlanes = 1;
  static constexpr int kUnitLines = 1;
  static constexpr int kBias = kKey ? 0 : 128;
  static constexpr bool kZeroPoint = false;
  using Factor = typename SideFactor<kKey>::Type;

  template <int>
  TQ_ALWAYS_INLINE static uint8x16_t Plane(const uint8_t* unit, int quarter) {
    return veorq_u8(vld1q_u8(unit + 16 * quarter), vdupq_n_u8(128));
  }
};

template <bool kIsKey, bool kHasZeroPoint>
struct NibbleLines {
  static constexpr bool kKey = kIsKey;
  static constexpr int kTerms = kKey ? 2 : 1;
  static constexpr int kMaxBlockRows = kKey ? kMaxRowsOfTerms : kMaxRows;
  static constexpr int kPlanes = 2;
  static constexpr int kUnitLines = 1;
  static constexpr int kBias = kHasZeroPoint ? 0 : 8;
  static constexpr bool kZeroPoint = kHasZeroPoint;
  using Factor = typename SideFactor<kKey>::Type;

  template <int kPlane>
  TQ_ALWAYS_INLINE static uint8x16_t Plane(const uint8_t* unit, int quarter) {
    const uint8x16_t pairs = vld1q_u8(unit + 16 * quarter);
    return kPlane == 0 ? vandq_u8(pairs, vdupq_n_u8(15)) : vshrq_n_u8(pairs, 4);
  }
};

// ---- the loop over units of lines ----

template <typename Format>
inline constexpr int kCodesPerUnit = 4 * Format::kPlanes;  // of a lane
template <typename Format>
inline constexpr size_t kUnitBytes = size_t{Format::kUnitLines} * kLineBytes;

template <typename Format, int kRows>
using Accumulators = int32x4_t[kRows][Format::kTerms][kQuarters];

struct UnitRange {
  const uint8_t* first;
  size_t stride_bytes;  // from a unit to the next
  int num_units;
  uintptr_t prefetch_offset;  // from a line to what is fetched beside it; unused without kPrefetch
};

// The factors of a block of rows at the first unit.
template <typename Factor>
struct FactorRows {
  const Factor* first;
  size_t row_stride, term_stride;
};

// Distance to `prefetch` from `lines`, which lies in another allocation; modulo 2^64.
inline uintptr_t PrefetchOffset(const uint8_t* prefetch, const uint8_t* lines) {
  return reinterpret_cast<uintptr_t>(prefetch) - reinterpret_cast<uintptr_t>(lines);
}

// Plane kPlane of a unit and those after it.
template <typename Format, int kRows, int kPlane = 0>
TQ_ALWAYS_INLINE void AddUnit(const uint8_t* unit, FactorRows<typename Format::Factor> factors,
                              Accumulators<Format, kRows>& acc) {
  uint8x16_t plane[kQuarters];
#pragma GCC unroll 4
  for (int i = 0; i < kQuarters; ++i) plane[i] = Format::template Plane<kPlane>(unit, i);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int term = 0; term < Format::kTerms; ++term) {
      const auto* f =
          factors.first + Size(r) * factors.row_stride + Size(term) * factors.term_stride;
#pragma GCC unroll 4
      for (int i = 0; i < kQuarters; ++i)
        acc[r][term][i] = AddDot(acc[r][term][i], plane[i], f + 4 * kPlane);
    }
  }
  if constexpr (kPlane + 1 < Format::kPlanes)
    AddUnit<Format, kRows, kPlane + 1>(unit, factors, acc);
}

template <typename Format, int kRows, bool kPrefetch>
TQ_ALWAYS_INLINE void MultiplyUnits(const UnitRange& units,
                                    FactorRows<typename Format::Factor> factors,
                                    Accumulators<Format, kRows>& acc) {
  const uint8_t* unit = units.first;
  for (int i = 0; i < units.num_units; ++i) {
    if constexpr (kPrefetch) {
      const uintptr_t address = reinterpret_cast<uintptr_t>(unit) + units.prefetch_offset;
#pragma GCC unroll 5
      for (int line = 0; line < Format::kUnitLines; ++line)
        __builtin_prefetch(reinterpret_cast<const char*>(address) + line * kLineBytes);
    }
    AddUnit<Format, kRows>(unit, factors, acc);
    unit += units.stride_bytes;
    factors.first += kCodesPerUnit<Format>;
  }
}

// What the accumulators of a row start from and end as: integers modulo 2^32 on the way, exact at
// the end (kernel_table.h). `start` goes into the last term, whose weight is 1.
template <typename Format>
TQ_ALWAYS_INLINE void StartRow(int32_t start, int32x4_t (&acc)[Format::kTerms][kQuarters]) {
#pragma GCC unroll 4
  for (int i = 0; i < kQuarters; ++i) {
    acc[0][i] = vdupq_n_s32(0);
    acc[Format::kTerms - 1][i] = vdupq_n_s32(start);
  }
}
template <typename Format>
TQ_ALWAYS_INLINE float32x4_t FinishQuarter(const int32x4_t (&acc)[Format::kTerms][kQuarters],
                                           int quarter) {
  if constexpr (Format::kTerms == 1) {
    return vcvtq_f32_s32(acc[0][quarter]);
  } else {
    return vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(acc[0][quarter], 8), acc[1][quarter]));
  }
}

// Calls block.operator()<kRows>(first_row) for blocks of at most kMax rows, as even as possible.
template <int kMax, typename Block>
inline void ForRowBlocks(int num_rows, const Block& block) {
  static_assert(kMax == 3 || kMax == 4);
  int row = 0;
  for (int blocks = (num_rows + kMax - 1) / kMax; blocks > 0; --blocks) {
    const int rows = (num_rows - row + blocks - 1) / blocks;
    switch (rows) {
      case 1:
        block.template operator()<1>(row);
        break;
      case 2:
        block.template operator()<2>(row);
        break;
      case 3:
        block.template operator()<3>(row);
        break;
      default:
        if constexpr (kMax == 4) block.template operator()<4>(row);
    }
    row += rows;
  }
}

}  // namespace turboquant::neondotprod

#endif  // TURBOQUANT_KERNELS_NEONDOTPROD_FORMATS_H_
