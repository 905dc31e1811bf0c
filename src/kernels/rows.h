// Row lists of the instruction sets, concatenated by kernel_table.cc. The lists live in
// rows_<isa>.cc, outside of the folders that get instruction-set flags: everything but the kernels
// themselves runs on every CPU.
//
// Each folder kernels/<isa> declares its kernels in kernels/<isa>/kernels.h under the same names:
// PrepareQ, Qk, Pv and Encode followed by the format (F32, F16, Bf16, Int8, Fp8E4m3, Fp8E5m2, Int6
// .. Int2, Int4Sym, Int4Asym; Narrow for what Int6 .. Int2 share), Softmax, ToHalf, Rotate,
// FitScales, ExpandScales and MeanDot; what a folder lacks the next weaker one does. QuantizeRow
// and Matmul (kernels/matmul.h) come together or not at all. A folder that is not compiled in
// (TURBOQUANT_HAVE_<ISA> undefined) has an empty list.
#ifndef TURBOQUANT_KERNELS_ROWS_H_
#define TURBOQUANT_KERNELS_ROWS_H_

#include <span>
#include <string_view>

#include "kernels/kernel_table.h"

namespace turboquant {

namespace scalar {
std::span<const KernelRow> Rows();
}
namespace neon {
std::span<const KernelRow> Rows();
}
namespace avx2 {
std::span<const KernelRow> Rows();
}
namespace avx512 {
std::span<const KernelRow> Rows();
}

// Builds the rows of one instruction set.
struct RowMaker {
  Isa isa;
  CpuFeatures features;

  constexpr KernelRow PrepareQ(std::string_view name, KvCacheDtype dtype, PrepareQFn fn) const {
    return {name, KernelOp::kPrepareQ, dtype, isa, features, {.prepare_q = fn}};
  }
  constexpr KernelRow Qk(std::string_view name, KvCacheDtype dtype, QkFn fn) const {
    return {name, KernelOp::kQk, dtype, isa, features, {.qk = fn}};
  }
  constexpr KernelRow Pv(std::string_view name, KvCacheDtype dtype, PvFn fn) const {
    return {name, KernelOp::kPv, dtype, isa, features, {.pv = fn}};
  }
  constexpr KernelRow Encode(std::string_view name, KvCacheDtype dtype, EncodeFn fn) const {
    return {name, KernelOp::kEncode, dtype, isa, features, {.encode = fn}};
  }
  constexpr KernelRow Softmax(std::string_view name, SoftmaxFn fn) const {
    return {name, KernelOp::kSoftmax, KvCacheDtype::kF32, isa, features, {.softmax = fn}};
  }
  constexpr KernelRow ToHalf(std::string_view name, ConvertFn fn) const {
    return {name, KernelOp::kToHalf, KvCacheDtype::kF32, isa, features, {.to_half = fn}};
  }
  constexpr KernelRow Rotate(std::string_view name, RotateFn fn) const {
    return {name, KernelOp::kRotate, KvCacheDtype::kF32, isa, features, {.rotate = fn}};
  }
  constexpr KernelRow FitScales(std::string_view name, FitScalesFn fn) const {
    return {name, KernelOp::kFitScales, KvCacheDtype::kF32, isa, features, {.fit_scales = fn}};
  }
  constexpr KernelRow ExpandScales(std::string_view name, ExpandScalesFn fn) const {
    return {name,     KernelOp::kExpandScales, KvCacheDtype::kF32, isa,
            features, {.expand_scales = fn}};
  }
  constexpr KernelRow MeanDot(std::string_view name, MeanDotFn fn) const {
    return {name, KernelOp::kMeanDot, KvCacheDtype::kF32, isa, features, {.mean_dot = fn}};
  }
  constexpr KernelRow QuantizeRow(std::string_view name, QuantizeRowFn fn) const {
    return {name, KernelOp::kQuantizeRow, KvCacheDtype::kF32, isa, features, {.quantize_row = fn}};
  }
  constexpr KernelRow Matmul(std::string_view name, WeightType type, MatmulFn fn) const {
    return {name, KernelOp::kMatmul, KvCacheDtype::kF32, isa, features, {.matmul = fn}, type};
  }
};

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_ROWS_H_
