// Products of formats.h by the dot products of bytes: one sdot (K, signed factors) or udot (V,
// unsigned ones) takes four codes of four lanes, the four factors broadcast.
#ifndef TURBOQUANT_KERNELS_NEONINT_DOT_PRODUCTS_H_
#define TURBOQUANT_KERNELS_NEONINT_DOT_PRODUCTS_H_

#include "kernels/neonint/formats.h"

namespace turboquant::TQ_FOLDER {

// Four bytes in every lane.
inline uint8x16_t BroadcastQuad(const void* p) {
  uint32_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return vreinterpretq_u8_u32(vdupq_n_u32(bits));
}

// acc[lane] += sum of the products of four bytes of `codes` with four factors: K meets signed
// factors (q), V unsigned ones (p), and the codes are of the same kind. Sums are modulo 2^32.
TQ_ALWAYS_INLINE int32x4_t AddDot(int32x4_t acc, uint8x16_t codes, const int8_t* factors) {
  return vdotq_s32(acc, vreinterpretq_s8_u8(codes), vreinterpretq_s8_u8(BroadcastQuad(factors)));
}
TQ_ALWAYS_INLINE int32x4_t AddDot(int32x4_t acc, uint8x16_t codes, const uint8_t* factors) {
  return vreinterpretq_s32_u32(
      vdotq_u32(vreinterpretq_u32_s32(acc), codes, BroadcastQuad(factors)));
}

// Accumulators of a block of rows over 16 lanes. Integers modulo 2^32 on the way, exact at the end
// (kernel_table.h).
template <typename Format, int kRows>
class DotSums {
 public:
  // `start` of a row goes into its last term, whose weight is 1.
  TQ_ALWAYS_INLINE explicit DotSums(const int32_t (&start)[kRows]) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int i = 0; i < kQuarters; ++i) {
        acc_[r][0][i] = vdupq_n_s32(0);
        acc_[r][Format::kTerms - 1][i] = vdupq_n_s32(start[r]);
      }
    }
  }

  static constexpr int kUnitsPerStep = 1;
  TQ_ALWAYS_INLINE void AddUnits(const uint8_t* unit, size_t,
                                 FactorRows<typename Format::Factor> factors) {
    AddPlanes<0>(unit, factors);
  }

  // Four lanes of a row, terms added up.
  TQ_ALWAYS_INLINE int32x4_t Quarter(int row, int quarter) const {
    if constexpr (Format::kTerms == 1) {
      return acc_[row][0][quarter];
    } else {
      return vaddq_s32(vshlq_n_s32(acc_[row][0][quarter], 8), acc_[row][1][quarter]);
    }
  }

 private:
  // Plane kPlane of a unit and those after it.
  template <int kPlane>
  TQ_ALWAYS_INLINE void AddPlanes(const uint8_t* unit,
                                  FactorRows<typename Format::Factor> factors) {
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
          acc_[r][term][i] = AddDot(acc_[r][term][i], plane[i], f + 4 * kPlane);
      }
    }
    if constexpr (kPlane + 1 < Format::kPlanes) AddPlanes<kPlane + 1>(unit, factors);
  }

  int32x4_t acc_[kRows][Format::kTerms][kQuarters];
};

struct DotProducts {
  template <typename Format, int kRows>
  using Sums = DotSums<Format, kRows>;
  // Of the 32 registers, 3 rows x 2 terms x 4 or 4 rows x 4 are accumulators.
  template <typename Format>
  static constexpr int kMaxRows = Format::kTerms == 2 ? 3 : 4;
  template <typename Format>
  static constexpr int kRowGranule = 1;
};

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONINT_DOT_PRODUCTS_H_
