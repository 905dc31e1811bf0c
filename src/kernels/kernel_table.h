// One table of kernels. A row = operation x stored format x instruction set; its declaration, its
// check (tests/check_kernels) and its timing follow from the row. Dispatched once at start.
//
// Contract of every kernel:
//  - pointers are as annotated; lines are 64-byte aligned, nothing else need be;
//  - nothing is allocated and nothing is read or written outside the stated extents;
//  - stored values are finite (encoders see to it: NaN is stored as 0, Inf saturates), so p = 0
//    hides a token; a NaN in q makes every p and the sum of its row NaN;
//  - row r of the output depends on row r of the input only, bit for bit: num_rows and the place of
//    a row never matter (this is what makes results independent of batching and chunking);
//  - integer products (IsInteger) equal the scalar rows bit for bit up to the last
//    float multiply; float paths agree within the bounds derived in tests/check_kernels.
// Products of weights have rows as well, and a contract of their own: kernels/matmul.h.
#ifndef TURBOQUANT_KERNELS_KERNEL_TABLE_H_
#define TURBOQUANT_KERNELS_KERNEL_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "codec/kv_cache_spec.h"
#include "codec/rotation.h"
#include "codec/scale_fit.h"
#include "codec/tile.h"
#include "kernels/cpu_features.h"
#include "kernels/matmul.h"

namespace turboquant {

// Tokens per QK, softmax or PV call; blocks longer than this take several.
inline constexpr int kMaxTileTokens = 64;
inline constexpr int kMaxTileRows = 32;  // (query, head) rows per call
inline constexpr int kMaxHeadDim = 512;
inline constexpr int kMaxGroups = 32;  // scales per token and head; group sizes: multiples of 16
// A row of q', a tile's row of p * v_scale or a block of activations (matmul.h) whose largest
// absolute value is below this counts as all zero, so that no reciprocal overflows.
inline constexpr float kTinyMax = 0x1p-100f;
// Largest code of a prepared query: 16 bits, or 8 where codes of K are narrow (beside their own
// error that of 8 bits in q is nothing: docs/decisions/005-block-mean-and-narrow-formats.md).
inline constexpr float kMaxQCode = 32512.0f, kMaxNarrowQCode = 127.0f;

// Queries, brought into the form that the QK kernel of the same format and ISA wants. The softmax
// scale, the static head scale and the per-channel K scales are folded in here:
//   q' = (q * scale) * channel_scale
// Integer formats: per row one scale sq and 16-bit codes
//   sq = max|q'| / 32512, q_int = rint(q' / sq)            (|q_int| <= 32512 = 127 * 256)
// so that a VNNI kernel can use two s8 terms, q_int = 256 * hi + lo, and an AVX2 kernel vpmaddwd,
// both exactly; narrow formats sq = max|q'| / 127 and |q_int| <= 127. A row with a non-finite q'
// gets q_int = 0 and sq = NaN; one with max|q'| < kTinyMax gets q_int = 0 and sq = 0.
struct PrepareQArgs {
  const float* q;  // num_rows rows of [head_dim], `q_stride` floats apart
  size_t q_stride;
  int num_rows, head_dim;
  int group_size;               // channels per K scale; head_dim where there is one or none
  float scale;                  // softmax scale x static head scale
  const float* channel_scales;  // [head_dim] or null
  void* out;                    // num_rows x PreparedQBytes(head_dim, group_size), 64-byte aligned
};
constexpr size_t PreparedQBytes(int head_dim, int group_size) {
  const size_t groups = static_cast<size_t>(head_dim) / static_cast<size_t>(group_size);
  return (4 * static_cast<size_t>(head_dim) + 4 * groups + 64 + 63) / 64 * 64;
}

// scores[r][t] = q_r . k_t in natural units (scale folded in): what softmax takes.
// Integer formats, for groups g in order:
//   int8, int4_sym, narrow (code = level):  (sum_g float(acc_g) * scale_g[t]) * sq
//   int4_asym:   (sum_g (float(acc_g) - zp_g[t] * float(sum of q_int_g)) * scale_g[t]) * sq
// with acc_g the exact int32 sum of q_int * code (it fits: 32512 * 127 * 512 < 2^31).
struct QkArgs {
  const void* q;     // prepared rows
  const uint8_t* k;  // K lines of the tile
  // f16 [num_groups][scale_stride], at the tile's first token; null where there is none.
  const uint16_t* scales;
  const uint16_t* zero_points;                     // same, int4_asym only
  int scale_stride;                                // block_size
  int num_rows, num_tokens, head_dim, group_size;  // num_tokens: multiple of 16, <= kMaxTileTokens
  float* scores;                                   // [num_rows][kMaxTileTokens]
  const float* offsets;     // [num_rows], added to every score of the row at last, or null
  const uint8_t* prefetch;  // prefetch + i is fetched beside line byte i (same extent), or null
};

// Online softmax of one tile. Valid tokens of row r are [begin[r], end[r]); outside, p = 0. The
// running maximum moves only when the tile's maximum exceeds it by more than kLazyRescale (or when
// it is -inf), so that O is rarely rescaled. Where it moves, rescale = exp(old - new) (0 from
// -inf), else 1. A tile of -inf only leaves max and rescale alone. p below 2^-126 may be flushed to
// 0.
inline constexpr float kLazyRescale = 8.0f;
struct SoftmaxArgs {
  float* scores;     // [num_rows][kMaxTileTokens]; in: logits, out: p = exp(logit - max[r])
  const int* begin;  // [num_rows]
  const int* end;    // [num_rows]; begin >= end: nothing valid, row's state is untouched and p = 0
  int num_rows, num_tokens;
  float logit_softcap;  // 0 = none; else logit = cap * tanh(logit / cap) before the softmax
  float* max;           // [num_rows] running reference maximum, -inf at first
  float* sum;           // [num_rows] running sum of p
  float* rescale;       // [num_rows] out: factor for what was accumulated before
};

// out[r] = out[r] * rescale[r] + sum_t p[r][t] * v_t.
// Integer formats: pv = p * v_scale; codes u8 = rint(pv * (255 / max)), max over the tile's row
// (per channel group where scales are per group); out += acc * (max / 255), where acc is the exact
// sum of u8 * code, for int4_asym float(acc) - sum_t u8[t] * zp[t]. A row with max < kTinyMax only
// gets its rescale. Static head and channel scales of V are not applied here but once at the end by
// the caller.
struct PvArgs {
  const float* p;               // [num_rows][kMaxTileTokens]
  const uint8_t* v;             // V lines of the tile
  const uint16_t* scales;       // f16 [num_groups][scale_stride] or null
  const uint16_t* zero_points;  // int4_asym only
  int scale_stride;
  int num_rows, num_tokens, head_dim, group_size;
  const float* rescale;     // [num_rows]
  float* out;               // [num_rows][head_dim]
  const uint8_t* prefetch;  // as in QkArgs
};

// n floats to f16: round half to even, NaN to 0, saturating at +-65504, so that a stored tail is
// always finite.
struct ConvertArgs {
  const float* in;
  uint16_t* out;
  size_t n;
};

using PrepareQFn = void (*)(const PrepareQArgs&);
using QkFn = void (*)(const QkArgs&);
using SoftmaxFn = void (*)(const SoftmaxArgs&);
using PvFn = void (*)(const PvArgs&);
using EncodeFn = void (*)(const EncodeArgs&);
using ConvertFn = void (*)(const ConvertArgs&);
using RotateFn = void (*)(const RotateArgs&);              // the bits of codec/rotation.h
using FitScalesFn = void (*)(const FitScalesArgs&);        // the bits of codec/scale_fit.h
using ExpandScalesFn = void (*)(const ExpandScalesArgs&);  // the same
using MeanDotFn = void (*)(const MeanDotArgs&);            // codec/block_mean.h

enum class KernelOp : uint8_t {
  kPrepareQ,
  kQk,
  kSoftmax,
  kPv,
  kEncode,
  kToHalf,
  kRotate,
  kFitScales,
  kExpandScales,
  kMeanDot,
  kQuantizeRow,
  kMatmul
};
// Rows of these operations are one for all formats of the cache; kMatmul: one per weight type.
constexpr bool IsForAnyFormat(KernelOp op) {
  return op != KernelOp::kPrepareQ && op != KernelOp::kQk && op != KernelOp::kPv &&
         op != KernelOp::kEncode;
}

struct KernelRow {
  std::string_view name;  // "qk/int8/avx2"
  KernelOp op;
  KvCacheDtype dtype;  // ignored where IsForAnyFormat
  Isa isa;
  CpuFeatures requires_features;
  union {
    PrepareQFn prepare_q;
    QkFn qk;
    SoftmaxFn softmax;
    PvFn pv;
    EncodeFn encode;
    ConvertFn to_half;
    RotateFn rotate;
    FitScalesFn fit_scales;
    ExpandScalesFn expand_scales;
    MeanDotFn mean_dot;
    QuantizeRowFn quantize_row;
    MatmulFn matmul;
  };
  WeightType weights{};  // kMatmul only
};

// Every row compiled in, weakest ISA first. Scalar rows exist for every op and format.
std::span<const KernelRow> AllKernelRows();

// The kernels in use: for each op and format the strongest row that `isa` and the CPU allow.
// kPrepareQ and kQk of a format always come from the same ISA folder. Products of weights are
// chosen by HostMatmul.
struct FormatKernels {
  PrepareQFn prepare_q = nullptr;
  QkFn qk = nullptr;
  PvFn pv = nullptr;
  EncodeFn encode = nullptr;
  std::string_view qk_name, pv_name, encode_name;
};
struct KernelTable {
  Isa isa;
  std::array<FormatKernels, kAllKvCacheDtypes.size()> formats;
  SoftmaxFn softmax = nullptr;
  ConvertFn to_half = nullptr;
  RotateFn rotate = nullptr;
  FitScalesFn fit_scales = nullptr;
  ExpandScalesFn expand_scales = nullptr;
  MeanDotFn mean_dot = nullptr;
  const FormatKernels& of(KvCacheDtype dtype) const { return formats[static_cast<size_t>(dtype)]; }
};
KernelTable MakeKernelTable(Isa isa, const CpuFeatures& cpu);

// The table to use: `forced` ("auto" for the best, "scalar", "avx2", "avx512", "neon"); if empty
// what the environment variable TURBOQUANT_ISA says in the same words; if that is not set the best.
// kUnsupported when the CPU lacks the forced one, kInvalidArgument when the name is unknown.
Result<KernelTable> SelectKernels(std::string_view forced);

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_KERNEL_TABLE_H_
