#include "kernels/scalar/kernels.h"
#include "kernels/scalar/lines.h"

namespace turboquant::scalar {
namespace {

// Codes of 16 tokens, [token][channel].
template <typename Code>
using TokenCodes = Code[kLanes][kMaxHeadDim];

template <KvCacheDtype kDtype>
void ReadTokens(const QkArgs& args, int first_token, TokenCodes<CodeType<kDtype>>& codes) {
  constexpr int kCodes = kCodesPerLane<kDtype>;
  const uint8_t* line = args.k + static_cast<size_t>(first_token) *
                                     static_cast<size_t>(args.head_dim) * CodeBits(kDtype) / 8;
  for (int c = 0; c < args.head_dim; c += kCodes, line += kUnitBytes<kDtype>) {
    for (int t = 0; t < kLanes; ++t) {
      for (int i = 0; i < kCodes; ++i)
        codes[t][c + i] = CodeAt<kDtype, KvSide::kKey>(line + 4 * t, i);
    }
  }
}

float ScaleAt(const uint16_t* scales, const QkArgs& args, int group, int token) {
  return HalfToFloat(scales[static_cast<size_t>(group) * static_cast<size_t>(args.scale_stride) +
                            static_cast<size_t>(token)]);
}

// Score of row r and token t, whose codes are given.
template <KvCacheDtype kDtype>
float Score(const QkArgs& args, int r, int t, const CodeType<kDtype>* codes) {
  void* prepared = const_cast<void*>(args.q);  // read only below
  const IntegerQ integer_q(prepared, r, args.head_dim, args.group_size);
  const float* float_q = FloatQ(prepared, r, args.head_dim, args.group_size);
  float score = 0;
  for (int g = 0; g < args.head_dim / args.group_size; ++g) {
    CodeType<kDtype> sum = 0;
    for (int c = g * args.group_size; c < (g + 1) * args.group_size; ++c) {
      if constexpr (IsInteger(kDtype)) {
        sum += integer_q.codes[c] * codes[c];
      } else {
        sum += float_q[c] * codes[c];
      }
    }
    float term = static_cast<float>(sum);
    if constexpr (kDtype == KvCacheDtype::kInt4Asym) {
      term -= ScaleAt(args.zero_points, args, g, t) * static_cast<float>(integer_q.sums[g]);
    }
    if (args.scales != nullptr) term *= ScaleAt(args.scales, args, g, t);
    score += term;
  }
  if constexpr (IsInteger(kDtype)) score *= *integer_q.scale;
  return args.offsets == nullptr ? score : score + args.offsets[r];
}

template <KvCacheDtype kDtype>
void Qk(const QkArgs& args) {
  TokenCodes<CodeType<kDtype>> codes;
  for (int first = 0; first < args.num_tokens; first += kLanes) {
    ReadTokens<kDtype>(args, first, codes);
    for (int r = 0; r < args.num_rows; ++r) {
      for (int t = 0; t < kLanes; ++t) {
        args.scores[r * kMaxTileTokens + first + t] = Score<kDtype>(args, r, first + t, codes[t]);
      }
    }
  }
}

}  // namespace

void QkF32(const QkArgs& args) { Qk<KvCacheDtype::kF32>(args); }
void QkF16(const QkArgs& args) { Qk<KvCacheDtype::kF16>(args); }
void QkBf16(const QkArgs& args) { Qk<KvCacheDtype::kBf16>(args); }
void QkInt8(const QkArgs& args) { Qk<KvCacheDtype::kInt8>(args); }
void QkFp8E4m3(const QkArgs& args) { Qk<KvCacheDtype::kFp8E4m3>(args); }
void QkFp8E5m2(const QkArgs& args) { Qk<KvCacheDtype::kFp8E5m2>(args); }
void QkInt6(const QkArgs& args) { Qk<KvCacheDtype::kInt6>(args); }
void QkInt5(const QkArgs& args) { Qk<KvCacheDtype::kInt5>(args); }
void QkInt4(const QkArgs& args) { Qk<KvCacheDtype::kInt4>(args); }
void QkInt3(const QkArgs& args) { Qk<KvCacheDtype::kInt3>(args); }
void QkInt2(const QkArgs& args) { Qk<KvCacheDtype::kInt2>(args); }
void QkInt4Sym(const QkArgs& args) { Qk<KvCacheDtype::kInt4Sym>(args); }
void QkInt4Asym(const QkArgs& args) { Qk<KvCacheDtype::kInt4Asym>(args); }

}  // namespace turboquant::scalar
