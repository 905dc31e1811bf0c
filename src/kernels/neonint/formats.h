// How the lines of the integer formats are multiplied: the inner loop shared by QK and PV.
//
// Both products have one shape. For 16 lanes (tokens of K, channels of V), units of lines and their
// planes (a plane: four codes of a byte per lane, codec/narrow.h):
//   acc[row][lane] += sum over the plane's four codes of byte * factor[row]
// A format says how a plane's bytes come out of its lines, as byte = code (or level) + kBias; what
// the bias adds is taken back in the accumulators' start, -kBias * (sum of the row's factors). One
// plane serves all rows of a block, and all terms of a factor (prepared_q.h). Which instructions
// multiply and add is said by Products:
//   Products::Sums<Format, kRows>      the accumulators of a block of rows (dot_products.h)
//   Sums::kUnitsPerStep                units that one AddUnits takes
//   Products::kMaxRows<Format>         rows in a block at most
//   Products::kRowGranule<Format>      blocks have a multiple of so many, but for the last
//
//   int8        K is stored + 128, V two's complement: one eor with 128 makes what is wanted, a
//               signed K and V + 128
//   int4_sym    nibbles by mask and shift; stored + 8
//   int4_asym   the same, as they are; zero points come at the end
//   int6..int2  narrow.h
#ifndef TURBOQUANT_KERNELS_NEONINT_FORMATS_H_
#define TURBOQUANT_KERNELS_NEONINT_FORMATS_H_

#include "kernels/neonint/vec.h"

namespace turboquant::TQ_FOLDER {

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

template <typename Format>
TQ_ALWAYS_INLINE void PrefetchUnit(const uint8_t* unit, uintptr_t offset) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(unit) + offset;
#pragma GCC unroll 5
  for (int line = 0; line < Format::kUnitLines; ++line)
    __builtin_prefetch(reinterpret_cast<const char*>(address) + line * kLineBytes);
}

// Distance to `prefetch` from `lines`, which lies in another allocation; modulo 2^64.
inline uintptr_t PrefetchOffset(const uint8_t* prefetch, const uint8_t* lines) {
  return reinterpret_cast<uintptr_t>(prefetch) - reinterpret_cast<uintptr_t>(lines);
}

template <typename Format, bool kPrefetch, typename Sums>
TQ_ALWAYS_INLINE void MultiplyUnits(const UnitRange& units,
                                    FactorRows<typename Format::Factor> factors, Sums& sums) {
  constexpr int kStep = Sums::kUnitsPerStep;
  const uint8_t* unit = units.first;
  for (int i = 0; i < units.num_units; i += kStep) {
    if constexpr (kPrefetch) {
#pragma GCC unroll 2
      for (int ahead = 0; ahead < kStep; ++ahead)
        PrefetchUnit<Format>(unit + Size(ahead) * units.stride_bytes, units.prefetch_offset);
    }
    sums.AddUnits(unit, units.stride_bytes, factors);
    unit += kStep * units.stride_bytes;
    factors.first += kStep * kCodesPerUnit<Format>;
  }
}

// ---- blocks of rows ----

template <int kRows, typename Block>
inline void CallBlock(int rows, int first_row, const Block& block) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return CallBlock<kRows - 1>(rows, first_row, block);
  }
  block.template operator()<kRows>(first_row);
}

// Calls block.operator()<kRows>(first_row) for blocks as Products wants them, as even as possible.
template <typename Products, typename Format, typename Block>
inline void ForRowBlocks(int num_rows, const Block& block) {
  constexpr int kMax = Products::template kMaxRows<Format>;
  constexpr int kGranule = Products::template kRowGranule<Format>;
  static_assert(kMax % kGranule == 0);
  int row = 0;
  for (int blocks = (num_rows + kMax - 1) / kMax; blocks > 0; --blocks) {
    const int left = num_rows - row;
    const int granules = (left + kGranule - 1) / kGranule;
    const int even = (granules + blocks - 1) / blocks * kGranule;
    const int rows = even < left ? even : left;
    CallBlock<kMax>(rows, row, block);
    row += rows;
  }
}

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONINT_FORMATS_H_
