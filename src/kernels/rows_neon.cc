#include "kernels/rows.h"

#ifdef TURBOQUANT_HAVE_NEON

#include "kernels/neon/kernels.h"
#include "kernels/neondotprod/kernels.h"
#include "kernels/neoni8mm/kernels.h"

namespace turboquant::neon {
namespace {

// What every AArch64 CPU runs, and QK and PV of integers by sdot and udot, or by smmla and ummla
// where there are those too: a CPU with neither takes the scalar rows there.
constexpr RowMaker kMake = {Isa::kNeon, {.neon = true}};
constexpr RowMaker kMakeDot = {Isa::kNeon, {.neon = true, .dotprod = true}};
constexpr RowMaker kMakeMatrix = {Isa::kNeon, {.neon = true, .dotprod = true, .i8mm = true}};

constexpr KernelRow kRows[] = {
    kMake.PrepareQ("prepare_q/f32/neon", KvCacheDtype::kF32, PrepareQF32),
    kMake.PrepareQ("prepare_q/f16/neon", KvCacheDtype::kF16, PrepareQF16),
    kMake.PrepareQ("prepare_q/bf16/neon", KvCacheDtype::kBf16, PrepareQBf16),
    kMakeDot.PrepareQ("prepare_q/int8/neondotprod", KvCacheDtype::kInt8, neondotprod::PrepareQInt8),
    kMake.PrepareQ("prepare_q/fp8_e4m3/neon", KvCacheDtype::kFp8E4m3, PrepareQFp8E4m3),
    kMake.PrepareQ("prepare_q/fp8_e5m2/neon", KvCacheDtype::kFp8E5m2, PrepareQFp8E5m2),
    kMakeDot.PrepareQ("prepare_q/int6/neondotprod", KvCacheDtype::kInt6,
                      neondotprod::PrepareQNarrow),
    kMakeDot.PrepareQ("prepare_q/int5/neondotprod", KvCacheDtype::kInt5,
                      neondotprod::PrepareQNarrow),
    kMakeDot.PrepareQ("prepare_q/int4/neondotprod", KvCacheDtype::kInt4,
                      neondotprod::PrepareQNarrow),
    kMakeDot.PrepareQ("prepare_q/int3/neondotprod", KvCacheDtype::kInt3,
                      neondotprod::PrepareQNarrow),
    kMakeDot.PrepareQ("prepare_q/int2/neondotprod", KvCacheDtype::kInt2,
                      neondotprod::PrepareQNarrow),
    kMakeDot.PrepareQ("prepare_q/int4_sym/neondotprod", KvCacheDtype::kInt4Sym,
                      neondotprod::PrepareQInt4Sym),
    kMakeDot.PrepareQ("prepare_q/int4_asym/neondotprod", KvCacheDtype::kInt4Asym,
                      neondotprod::PrepareQInt4Asym),
    kMake.Qk("qk/f32/neon", KvCacheDtype::kF32, QkF32),
    kMake.Qk("qk/f16/neon", KvCacheDtype::kF16, QkF16),
    kMake.Qk("qk/bf16/neon", KvCacheDtype::kBf16, QkBf16),
    kMakeDot.Qk("qk/int8/neondotprod", KvCacheDtype::kInt8, neondotprod::QkInt8),
    kMake.Qk("qk/fp8_e4m3/neon", KvCacheDtype::kFp8E4m3, QkFp8E4m3),
    kMake.Qk("qk/fp8_e5m2/neon", KvCacheDtype::kFp8E5m2, QkFp8E5m2),
    kMakeDot.Qk("qk/int6/neondotprod", KvCacheDtype::kInt6, neondotprod::QkInt6),
    kMakeDot.Qk("qk/int5/neondotprod", KvCacheDtype::kInt5, neondotprod::QkInt5),
    kMakeDot.Qk("qk/int4/neondotprod", KvCacheDtype::kInt4, neondotprod::QkInt4),
    kMakeDot.Qk("qk/int3/neondotprod", KvCacheDtype::kInt3, neondotprod::QkInt3),
    kMakeDot.Qk("qk/int2/neondotprod", KvCacheDtype::kInt2, neondotprod::QkInt2),
    kMakeDot.Qk("qk/int4_sym/neondotprod", KvCacheDtype::kInt4Sym, neondotprod::QkInt4Sym),
    kMakeDot.Qk("qk/int4_asym/neondotprod", KvCacheDtype::kInt4Asym, neondotprod::QkInt4Asym),
    kMake.Pv("pv/f32/neon", KvCacheDtype::kF32, PvF32),
    kMake.Pv("pv/f16/neon", KvCacheDtype::kF16, PvF16),
    kMake.Pv("pv/bf16/neon", KvCacheDtype::kBf16, PvBf16),
    kMakeDot.Pv("pv/int8/neondotprod", KvCacheDtype::kInt8, neondotprod::PvInt8),
    kMake.Pv("pv/fp8_e4m3/neon", KvCacheDtype::kFp8E4m3, PvFp8E4m3),
    kMake.Pv("pv/fp8_e5m2/neon", KvCacheDtype::kFp8E5m2, PvFp8E5m2),
    kMakeDot.Pv("pv/int6/neondotprod", KvCacheDtype::kInt6, neondotprod::PvInt6),
    kMakeDot.Pv("pv/int5/neondotprod", KvCacheDtype::kInt5, neondotprod::PvInt5),
    kMakeDot.Pv("pv/int4/neondotprod", KvCacheDtype::kInt4, neondotprod::PvInt4),
    kMakeDot.Pv("pv/int3/neondotprod", KvCacheDtype::kInt3, neondotprod::PvInt3),
    kMakeDot.Pv("pv/int2/neondotprod", KvCacheDtype::kInt2, neondotprod::PvInt2),
    kMakeDot.Pv("pv/int4_sym/neondotprod", KvCacheDtype::kInt4Sym, neondotprod::PvInt4Sym),
    kMakeDot.Pv("pv/int4_asym/neondotprod", KvCacheDtype::kInt4Asym, neondotprod::PvInt4Asym),
    kMakeMatrix.PrepareQ("prepare_q/int8/neoni8mm", KvCacheDtype::kInt8, neoni8mm::PrepareQInt8),
    kMakeMatrix.PrepareQ("prepare_q/int6/neoni8mm", KvCacheDtype::kInt6, neoni8mm::PrepareQNarrow),
    kMakeMatrix.PrepareQ("prepare_q/int5/neoni8mm", KvCacheDtype::kInt5, neoni8mm::PrepareQNarrow),
    kMakeMatrix.PrepareQ("prepare_q/int4/neoni8mm", KvCacheDtype::kInt4, neoni8mm::PrepareQNarrow),
    kMakeMatrix.PrepareQ("prepare_q/int3/neoni8mm", KvCacheDtype::kInt3, neoni8mm::PrepareQNarrow),
    kMakeMatrix.PrepareQ("prepare_q/int2/neoni8mm", KvCacheDtype::kInt2, neoni8mm::PrepareQNarrow),
    kMakeMatrix.PrepareQ("prepare_q/int4_sym/neoni8mm", KvCacheDtype::kInt4Sym,
                         neoni8mm::PrepareQInt4Sym),
    kMakeMatrix.PrepareQ("prepare_q/int4_asym/neoni8mm", KvCacheDtype::kInt4Asym,
                         neoni8mm::PrepareQInt4Asym),
    kMakeMatrix.Qk("qk/int8/neoni8mm", KvCacheDtype::kInt8, neoni8mm::QkInt8),
    kMakeMatrix.Qk("qk/int6/neoni8mm", KvCacheDtype::kInt6, neoni8mm::QkInt6),
    kMakeMatrix.Qk("qk/int5/neoni8mm", KvCacheDtype::kInt5, neoni8mm::QkInt5),
    kMakeMatrix.Qk("qk/int4/neoni8mm", KvCacheDtype::kInt4, neoni8mm::QkInt4),
    kMakeMatrix.Qk("qk/int3/neoni8mm", KvCacheDtype::kInt3, neoni8mm::QkInt3),
    kMakeMatrix.Qk("qk/int2/neoni8mm", KvCacheDtype::kInt2, neoni8mm::QkInt2),
    kMakeMatrix.Qk("qk/int4_sym/neoni8mm", KvCacheDtype::kInt4Sym, neoni8mm::QkInt4Sym),
    kMakeMatrix.Qk("qk/int4_asym/neoni8mm", KvCacheDtype::kInt4Asym, neoni8mm::QkInt4Asym),
    kMakeMatrix.Pv("pv/int8/neoni8mm", KvCacheDtype::kInt8, neoni8mm::PvInt8),
    kMakeMatrix.Pv("pv/int6/neoni8mm", KvCacheDtype::kInt6, neoni8mm::PvInt6),
    kMakeMatrix.Pv("pv/int5/neoni8mm", KvCacheDtype::kInt5, neoni8mm::PvInt5),
    kMakeMatrix.Pv("pv/int4/neoni8mm", KvCacheDtype::kInt4, neoni8mm::PvInt4),
    kMakeMatrix.Pv("pv/int3/neoni8mm", KvCacheDtype::kInt3, neoni8mm::PvInt3),
    kMakeMatrix.Pv("pv/int2/neoni8mm", KvCacheDtype::kInt2, neoni8mm::PvInt2),
    kMakeMatrix.Pv("pv/int4_sym/neoni8mm", KvCacheDtype::kInt4Sym, neoni8mm::PvInt4Sym),
    kMakeMatrix.Pv("pv/int4_asym/neoni8mm", KvCacheDtype::kInt4Asym, neoni8mm::PvInt4Asym),
    kMake.Encode("encode/f32/neon", KvCacheDtype::kF32, EncodeF32),
    kMake.Encode("encode/f16/neon", KvCacheDtype::kF16, EncodeF16),
    kMake.Encode("encode/bf16/neon", KvCacheDtype::kBf16, EncodeBf16),
    kMake.Encode("encode/int8/neon", KvCacheDtype::kInt8, EncodeInt8),
    kMake.Encode("encode/fp8_e4m3/neon", KvCacheDtype::kFp8E4m3, EncodeFp8E4m3),
    kMake.Encode("encode/fp8_e5m2/neon", KvCacheDtype::kFp8E5m2, EncodeFp8E5m2),
    kMake.Encode("encode/int6/neon", KvCacheDtype::kInt6, EncodeNarrow),
    kMake.Encode("encode/int5/neon", KvCacheDtype::kInt5, EncodeNarrow),
    kMake.Encode("encode/int4/neon", KvCacheDtype::kInt4, EncodeNarrow),
    kMake.Encode("encode/int3/neon", KvCacheDtype::kInt3, EncodeNarrow),
    kMake.Encode("encode/int2/neon", KvCacheDtype::kInt2, EncodeNarrow),
    kMake.Encode("encode/int4_sym/neon", KvCacheDtype::kInt4Sym, EncodeInt4Sym),
    kMake.Encode("encode/int4_asym/neon", KvCacheDtype::kInt4Asym, EncodeInt4Asym),
    kMake.Softmax("softmax/neon", Softmax),
    kMake.ToHalf("to_half/neon", ToHalf),
    kMake.Rotate("rotate/neon", Rotate),
    kMake.FitScales("fit_scales/neon", FitScales),
    kMake.ExpandScales("expand_scales/neon", ExpandScales),
    kMake.MeanDot("mean_dot/neon", MeanDot),
};

}  // namespace

std::span<const KernelRow> Rows() { return kRows; }

}  // namespace turboquant::neon

#else

namespace turboquant::neon {
std::span<const KernelRow> Rows() { return {}; }
}  // namespace turboquant::neon

#endif
