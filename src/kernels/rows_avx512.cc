#include "kernels/rows.h"

#ifdef TURBOQUANT_HAVE_AVX512

#include "kernels/avx512/kernels.h"
#include "kernels/avx512bf16/kernels.h"

namespace turboquant::avx512 {
namespace {

constexpr RowMaker kMake = {Isa::kAvx512, {.avx2 = true, .avx512 = true}};
constexpr RowMaker kMakeBf16 = {Isa::kAvx512, {.avx2 = true, .avx512 = true, .avx512_bf16 = true}};

constexpr KernelRow kRows[] = {
    kMake.PrepareQ("prepare_q/f32/avx512", KvCacheDtype::kF32, PrepareQF32),
    kMake.PrepareQ("prepare_q/f16/avx512", KvCacheDtype::kF16, PrepareQF16),
    kMake.PrepareQ("prepare_q/bf16/avx512", KvCacheDtype::kBf16, PrepareQBf16),
    kMake.PrepareQ("prepare_q/int8/avx512", KvCacheDtype::kInt8, PrepareQInt8),
    kMake.PrepareQ("prepare_q/fp8_e4m3/avx512", KvCacheDtype::kFp8E4m3, PrepareQFp8E4m3),
    kMake.PrepareQ("prepare_q/fp8_e5m2/avx512", KvCacheDtype::kFp8E5m2, PrepareQFp8E5m2),
    kMake.PrepareQ("prepare_q/int6/avx512", KvCacheDtype::kInt6, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int5/avx512", KvCacheDtype::kInt5, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int4/avx512", KvCacheDtype::kInt4, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int3/avx512", KvCacheDtype::kInt3, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int2/avx512", KvCacheDtype::kInt2, PrepareQNarrow),
    kMake.PrepareQ("prepare_q/int4_sym/avx512", KvCacheDtype::kInt4Sym, PrepareQInt4Sym),
    kMake.PrepareQ("prepare_q/int4_asym/avx512", KvCacheDtype::kInt4Asym, PrepareQInt4Asym),
    kMake.Qk("qk/f32/avx512", KvCacheDtype::kF32, QkF32),
    kMake.Qk("qk/f16/avx512", KvCacheDtype::kF16, QkF16),
    kMake.Qk("qk/bf16/avx512", KvCacheDtype::kBf16, QkBf16),
    kMake.Qk("qk/int8/avx512", KvCacheDtype::kInt8, QkInt8),
    kMake.Qk("qk/fp8_e4m3/avx512", KvCacheDtype::kFp8E4m3, QkFp8E4m3),
    kMake.Qk("qk/fp8_e5m2/avx512", KvCacheDtype::kFp8E5m2, QkFp8E5m2),
    kMake.Qk("qk/int6/avx512", KvCacheDtype::kInt6, QkInt6),
    kMake.Qk("qk/int5/avx512", KvCacheDtype::kInt5, QkInt5),
    kMake.Qk("qk/int4/avx512", KvCacheDtype::kInt4, QkInt4),
    kMake.Qk("qk/int3/avx512", KvCacheDtype::kInt3, QkInt3),
    kMake.Qk("qk/int2/avx512", KvCacheDtype::kInt2, QkInt2),
    kMake.Qk("qk/int4_sym/avx512", KvCacheDtype::kInt4Sym, QkInt4Sym),
    kMake.Qk("qk/int4_asym/avx512", KvCacheDtype::kInt4Asym, QkInt4Asym),
    kMake.Pv("pv/f32/avx512", KvCacheDtype::kF32, PvF32),
    kMake.Pv("pv/f16/avx512", KvCacheDtype::kF16, PvF16),
    kMake.Pv("pv/bf16/avx512", KvCacheDtype::kBf16, PvBf16),
    kMake.Pv("pv/int8/avx512", KvCacheDtype::kInt8, PvInt8),
    kMake.Pv("pv/fp8_e4m3/avx512", KvCacheDtype::kFp8E4m3, PvFp8E4m3),
    kMake.Pv("pv/fp8_e5m2/avx512", KvCacheDtype::kFp8E5m2, PvFp8E5m2),
    kMake.Pv("pv/int6/avx512", KvCacheDtype::kInt6, PvInt6),
    kMake.Pv("pv/int5/avx512", KvCacheDtype::kInt5, PvInt5),
    kMake.Pv("pv/int4/avx512", KvCacheDtype::kInt4, PvInt4),
    kMake.Pv("pv/int3/avx512", KvCacheDtype::kInt3, PvInt3),
    kMake.Pv("pv/int2/avx512", KvCacheDtype::kInt2, PvInt2),
    kMake.Pv("pv/int4_sym/avx512", KvCacheDtype::kInt4Sym, PvInt4Sym),
    kMake.Pv("pv/int4_asym/avx512", KvCacheDtype::kInt4Asym, PvInt4Asym),
    kMake.Encode("encode/f32/avx512", KvCacheDtype::kF32, EncodeF32),
    kMake.Encode("encode/f16/avx512", KvCacheDtype::kF16, EncodeF16),
    kMake.Encode("encode/bf16/avx512", KvCacheDtype::kBf16, EncodeBf16),
    kMake.Encode("encode/int8/avx512", KvCacheDtype::kInt8, EncodeInt8),
    kMake.Encode("encode/fp8_e4m3/avx512", KvCacheDtype::kFp8E4m3, EncodeFp8E4m3),
    kMake.Encode("encode/fp8_e5m2/avx512", KvCacheDtype::kFp8E5m2, EncodeFp8E5m2),
    kMake.Encode("encode/int4_sym/avx512", KvCacheDtype::kInt4Sym, EncodeInt4Sym),
    kMake.Encode("encode/int4_asym/avx512", KvCacheDtype::kInt4Asym, EncodeInt4Asym),
    kMakeBf16.PrepareQ("prepare_q/bf16/avx512bf16", KvCacheDtype::kBf16, avx512bf16::PrepareQBf16),
    kMakeBf16.Qk("qk/bf16/avx512bf16", KvCacheDtype::kBf16, avx512bf16::QkBf16),
    kMakeBf16.Pv("pv/bf16/avx512bf16", KvCacheDtype::kBf16, avx512bf16::PvBf16),
    kMake.Softmax("softmax/avx512", Softmax),
    kMake.ToHalf("to_half/avx512", ToHalf),
};

}  // namespace

std::span<const KernelRow> Rows() { return kRows; }

}  // namespace turboquant::avx512

#else

namespace turboquant::avx512 {
std::span<const KernelRow> Rows() { return {}; }
}  // namespace turboquant::avx512

#endif
