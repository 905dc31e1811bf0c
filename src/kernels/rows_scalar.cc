#include "kernels/rows.h"
#include "kernels/scalar/kernels.h"

namespace turboquant::scalar {
namespace {

constexpr RowMaker kMake = {Isa::kScalar, {}};

constexpr KernelRow kRows[] = {
    kMake.PrepareQ("prepare_q/f32/scalar", KvCacheDtype::kF32, PrepareQF32),
    kMake.PrepareQ("prepare_q/f16/scalar", KvCacheDtype::kF16, PrepareQF16),
    kMake.PrepareQ("prepare_q/bf16/scalar", KvCacheDtype::kBf16, PrepareQBf16),
    kMake.PrepareQ("prepare_q/int8/scalar", KvCacheDtype::kInt8, PrepareQInt8),
    kMake.PrepareQ("prepare_q/fp8_e4m3/scalar", KvCacheDtype::kFp8E4m3, PrepareQFp8E4m3),
    kMake.PrepareQ("prepare_q/fp8_e5m2/scalar", KvCacheDtype::kFp8E5m2, PrepareQFp8E5m2),
    kMake.PrepareQ("prepare_q/int6/scalar", KvCacheDtype::kInt6, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int5/scalar", KvCacheDtype::kInt5, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int4/scalar", KvCacheDtype::kInt4, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int3/scalar", KvCacheDtype::kInt3, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int2/scalar", KvCacheDtype::kInt2, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int4_sym/scalar", KvCacheDtype::kInt4Sym, PrepareQInt4Sym),
    kMake.PrepareQ("prepare_q/int4_asym/scalar", KvCacheDtype::kInt4Asym, PrepareQInt4Asym),
    kMake.Qk("qk/f32/scalar", KvCacheDtype::kF32, QkF32),
    kMake.Qk("qk/f16/scalar", KvCacheDtype::kF16, QkF16),
    kMake.Qk("qk/bf16/scalar", KvCacheDtype::kBf16, QkBf16),
    kMake.Qk("qk/int8/scalar", KvCacheDtype::kInt8, QkInt8),
    kMake.Qk("qk/fp8_e4m3/scalar", KvCacheDtype::kFp8E4m3, QkFp8E4m3),
    kMake.Qk("qk/fp8_e5m2/scalar", KvCacheDtype::kFp8E5m2, QkFp8E5m2),
    kMake.Qk("qk/int6/scalar", KvCacheDtype::kInt6, QkInt6),
    kMake.Qk("qk/int5/scalar", KvCacheDtype::kInt5, QkInt5),
    kMake.Qk("qk/int4/scalar", KvCacheDtype::kInt4, QkInt4),
    kMake.Qk("qk/int3/scalar", KvCacheDtype::kInt3, QkInt3),
    kMake.Qk("qk/int2/scalar", KvCacheDtype::kInt2, QkInt2),
    kMake.Qk("qk/int4_sym/scalar", KvCacheDtype::kInt4Sym, QkInt4Sym),
    kMake.Qk("qk/int4_asym/scalar", KvCacheDtype::kInt4Asym, QkInt4Asym),
    kMake.Pv("pv/f32/scalar", KvCacheDtype::kF32, PvF32),
    kMake.Pv("pv/f16/scalar", KvCacheDtype::kF16, PvF16),
    kMake.Pv("pv/bf16/scalar", KvCacheDtype::kBf16, PvBf16),
    kMake.Pv("pv/int8/scalar", KvCacheDtype::kInt8, PvInt8),
    kMake.Pv("pv/fp8_e4m3/scalar", KvCacheDtype::kFp8E4m3, PvFp8E4m3),
    kMake.Pv("pv/fp8_e5m2/scalar", KvCacheDtype::kFp8E5m2, PvFp8E5m2),
    kMake.Pv("pv/int6/scalar", KvCacheDtype::kInt6, PvInt6),
    kMake.Pv("pv/int5/scalar", KvCacheDtype::kInt5, PvInt5),
    kMake.Pv("pv/int4/scalar", KvCacheDtype::kInt4, PvInt4),
    kMake.Pv("pv/int3/scalar", KvCacheDtype::kInt3, PvInt3),
    kMake.Pv("pv/int2/scalar", KvCacheDtype::kInt2, PvInt2),
    kMake.Pv("pv/int4_sym/scalar", KvCacheDtype::kInt4Sym, PvInt4Sym),
    kMake.Pv("pv/int4_asym/scalar", KvCacheDtype::kInt4Asym, PvInt4Asym),
    kMake.Encode("encode/f32/scalar", KvCacheDtype::kF32, EncodeF32),
    kMake.Encode("encode/f16/scalar", KvCacheDtype::kF16, EncodeF16),
    kMake.Encode("encode/bf16/scalar", KvCacheDtype::kBf16, EncodeBf16),
    kMake.Encode("encode/int8/scalar", KvCacheDtype::kInt8, EncodeInt8),
    kMake.Encode("encode/fp8_e4m3/scalar", KvCacheDtype::kFp8E4m3, EncodeFp8E4m3),
    kMake.Encode("encode/fp8_e5m2/scalar", KvCacheDtype::kFp8E5m2, EncodeFp8E5m2),
    kMake.Encode("encode/int6/scalar", KvCacheDtype::kInt6, EncodeNarrow),
    kMake.Encode("encode/int5/scalar", KvCacheDtype::kInt5, EncodeNarrow),
    kMake.Encode("encode/int4/scalar", KvCacheDtype::kInt4, EncodeNarrow),
    kMake.Encode("encode/int3/scalar", KvCacheDtype::kInt3, EncodeNarrow),
    kMake.Encode("encode/int2/scalar", KvCacheDtype::kInt2, EncodeNarrow),
    kMake.Encode("encode/int4_sym/scalar", KvCacheDtype::kInt4Sym, EncodeInt4Sym),
    kMake.Encode("encode/int4_asym/scalar", KvCacheDtype::kInt4Asym, EncodeInt4Asym),
    kMake.Softmax("softmax/scalar", Softmax),
    kMake.ToHalf("to_half/scalar", ToHalf),
    kMake.Rotate("rotate/scalar", Rotate),
    kMake.FitScales("fit_scales/scalar", FitScales),
    kMake.ExpandScales("expand_scales/scalar", ExpandScales),
    kMake.MeanDot("mean_dot/scalar", MeanDot),
    kMake.QuantizeRow("quantize_row/scalar", QuantizeRow),
    kMake.Matmul("matmul/q4_0/scalar", WeightType::kQ4_0, Matmul),
    kMake.Matmul("matmul/q4_1/scalar", WeightType::kQ4_1, Matmul),
    kMake.Matmul("matmul/q5_0/scalar", WeightType::kQ5_0, Matmul),
    kMake.Matmul("matmul/q5_1/scalar", WeightType::kQ5_1, Matmul),
    kMake.Matmul("matmul/q8_0/scalar", WeightType::kQ8_0, Matmul),
    kMake.Matmul("matmul/q4_k/scalar", WeightType::kQ4K, Matmul),
    kMake.Matmul("matmul/q5_k/scalar", WeightType::kQ5K, Matmul),
};

}  // namespace

std::span<const KernelRow> Rows() { return kRows; }

}  // namespace turboquant::scalar
