// Products of kernels/neonint/formats.h by the matrix products of bytes (FEAT_I8MM): one smmla (K,
// signed factors) or ummla (V, unsigned ones) takes eight codes of two lanes and eight factors of
// two rows,
//   acc[row][lane] += sum of row[0..7] * lane[0..7]      acc: [2 rows][2 lanes], a vector
// twice what an sdot takes. A line has four codes of a lane side by side; two planes zipped by
// 32-bit lanes have eight:
//   zip1 of a quarter of both: lanes 0 and 1        zip2: lanes 2 and 3
// A pair of rows here is the two terms of one row where factors have 16 bits, else two rows. Of the
// latter an odd one is paired with itself, which costs what its dot products would; a row alone
// takes those and zips nothing. Sums are of integers: the same whatever the block.
#ifndef TURBOQUANT_KERNELS_NEONI8MM_MATRIX_PRODUCTS_H_
#define TURBOQUANT_KERNELS_NEONI8MM_MATRIX_PRODUCTS_H_

#include <type_traits>

#include "kernels/neonint/dot_products.h"

namespace turboquant::TQ_FOLDER {

// acc + [2 rows][8 factors] x [2 lanes][8 codes], modulo 2^32.
TQ_ALWAYS_INLINE int32x4_t AddMatrix(int32x4_t acc, int8x16_t rows, uint8x16_t lanes) {
  return vmmlaq_s32(acc, rows, vreinterpretq_s8_u8(lanes));
}
TQ_ALWAYS_INLINE int32x4_t AddMatrix(int32x4_t acc, uint8x16_t rows, uint8x16_t lanes) {
  return vreinterpretq_s32_u32(vmmlaq_u32(vreinterpretq_u32_s32(acc), rows, lanes));
}

TQ_ALWAYS_INLINE int8x16_t LoadPair(const int8_t* first, const int8_t* second) {
  return vcombine_s8(vld1_s8(first), vld1_s8(second));
}
TQ_ALWAYS_INLINE uint8x16_t LoadPair(const uint8_t* first, const uint8_t* second) {
  return vcombine_u8(vld1_u8(first), vld1_u8(second));
}

// As DotSums.
template <typename Format, int kRows>
class MatrixSums {
 public:
  TQ_ALWAYS_INLINE explicit MatrixSums(const int32_t (&start)[kRows]) {
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
      const int32_t first = kTwoTerms ? 0 : start[First(p)], second = start[Second(p)];
      const int32x4_t both = vcombine_s32(vdup_n_s32(first), vdup_n_s32(second));
#pragma GCC unroll 4
      for (int i = 0; i < kQuarters; ++i) acc_[p][i][0] = acc_[p][i][1] = both;
    }
  }

  // Two units of one plane make a pair of planes.
  static constexpr int kUnitsPerStep = Format::kPlanes == 1 ? 2 : 1;
  TQ_ALWAYS_INLINE void AddUnits(const uint8_t* unit, size_t stride_bytes,
                                 FactorRows<typename Format::Factor> factors) {
    AddPlanePairs<0>(unit, stride_bytes, factors);
  }

  TQ_ALWAYS_INLINE int32x4_t Quarter(int row, int quarter) const {
    if constexpr (kTwoTerms) {
      return vaddq_s32(vshlq_n_s32(Half<0>(row, quarter), 8), Half<1>(row, quarter));
    } else {
      return row % 2 == 0 ? Half<0>(row / 2, quarter) : Half<1>(row / 2, quarter);
    }
  }

 private:
  static constexpr bool kTwoTerms = Format::kTerms == 2;
  static constexpr int kPairs = kTwoTerms ? kRows : (kRows + 1) / 2;

  // The rows of a pair.
  static constexpr int First(int pair) { return kTwoTerms ? pair : 2 * pair; }
  static constexpr int Second(int pair) {
    return kTwoTerms || 2 * pair + 1 == kRows ? First(pair) : 2 * pair + 1;
  }

  template <int kPlane>
  TQ_ALWAYS_INLINE static uint32x4_t Plane(const uint8_t* unit, size_t stride_bytes, int quarter) {
    constexpr int kUnit = kPlane / Format::kPlanes;
    return vreinterpretq_u32_u8(
        Format::template Plane<kPlane % Format::kPlanes>(unit + kUnit * stride_bytes, quarter));
  }

  // Planes kPlane and kPlane + 1 of a step and those after them.
  template <int kPlane>
  TQ_ALWAYS_INLINE void AddPlanePairs(const uint8_t* unit, size_t stride_bytes,
                                      FactorRows<typename Format::Factor> factors) {
    decltype(LoadPair(factors.first, factors.first)) rows[kPairs];
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
      const auto* first = factors.first + Size(First(p)) * factors.row_stride + 4 * kPlane;
      const auto* second = factors.first + Size(Second(p)) * factors.row_stride + 4 * kPlane;
      rows[p] = LoadPair(first, kTwoTerms ? first + factors.term_stride : second);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kQuarters; ++i) {
      const uint32x4_t a = Plane<kPlane>(unit, stride_bytes, i);
      const uint32x4_t b = Plane<kPlane + 1>(unit, stride_bytes, i);
      const uint8x16_t lanes01 = vreinterpretq_u8_u32(vzip1q_u32(a, b));
      const uint8x16_t lanes23 = vreinterpretq_u8_u32(vzip2q_u32(a, b));
#pragma GCC unroll 2
      for (int p = 0; p < kPairs; ++p) {
        acc_[p][i][0] = AddMatrix(acc_[p][i][0], rows[p], lanes01);
        acc_[p][i][1] = AddMatrix(acc_[p][i][1], rows[p], lanes23);
      }
    }
    if constexpr (kPlane + 2 < Format::kPlanes)
      AddPlanePairs<kPlane + 2>(unit, stride_bytes, factors);
  }

  // Four lanes of one of the two factors of a pair.
  template <int kSecond>
  TQ_ALWAYS_INLINE int32x4_t Half(int pair, int quarter) const {
    const int64x2_t lanes01 = vreinterpretq_s64_s32(acc_[pair][quarter][0]);
    const int64x2_t lanes23 = vreinterpretq_s64_s32(acc_[pair][quarter][1]);
    return vreinterpretq_s32_s64(kSecond == 0 ? vzip1q_s64(lanes01, lanes23)
                                              : vzip2q_s64(lanes01, lanes23));
  }

  int32x4_t acc_[kPairs][kQuarters][2];  // of [2 rows][2 lanes]
};

struct MatrixProducts {
  template <typename Format, int kRows>
  using Sums = std::conditional_t<kRows * Format::kTerms == 1, DotSums<Format, kRows>,
                                  MatrixSums<Format, kRows>>;
  // Two pairs, 16 accumulators of the 32 registers. With three, clang 19 moves accumulators about
  // and to memory in the loop: at int8 and 4 bits more instructions per row, not fewer.
  template <typename Format>
  static constexpr int kMaxRows = Format::kTerms == 2 ? 2 : 4;
  template <typename Format>
  static constexpr int kRowGranule = Format::kTerms == 2 ? 1 : 2;
};

}  // namespace turboquant::TQ_FOLDER

#endif  // TURBOQUANT_KERNELS_NEONI8MM_MATRIX_PRODUCTS_H_
