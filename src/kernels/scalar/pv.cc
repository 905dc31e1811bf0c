#include <cmath>

#include "kernels/scalar/kernels.h"
#include "kernels/scalar/lines.h"

namespace turboquant::scalar {
namespace {

// Probabilities of all rows over one channel group, V scales folded in. Integer formats: codes
// 0..255 and the value of one step; a row whose maximum is below kTinyMax has step 0 and codes 0.
template <typename Code>
struct GroupP {
  Code codes[kMaxTileRows][kMaxTileTokens];
  float step[kMaxTileRows];
};

float ScaleAt(const uint16_t* scales, const PvArgs& args, int group, int token) {
  return HalfToFloat(scales[static_cast<size_t>(group) * static_cast<size_t>(args.scale_stride) +
                            static_cast<size_t>(token)]);
}

// p of row r with the V scales folded in; returns the row's maximum. A NaN does not take part in
// the maximum.
float FoldScales(const PvArgs& args, int group, int r, float* pv) {
  float max = 0;
  for (int t = 0; t < args.num_tokens; ++t) {
    pv[t] = args.p[r * kMaxTileTokens + t];
    if (args.scales != nullptr) pv[t] *= ScaleAt(args.scales, args, group, t);
    max = std::fmax(max, pv[t]);
  }
  return max;
}

void FillGroup(const PvArgs& args, int group, GroupP<int>& p) {
  for (int r = 0; r < args.num_rows; ++r) {
    float pv[kMaxTileTokens];
    const float max = FoldScales(args, group, r, pv);
    const bool empty = max < kTinyMax;
    p.step[r] = empty ? 0.0f : max / 255.0f;
    for (int t = 0; t < args.num_tokens; ++t) {
      p.codes[r][t] = !empty && pv[t] > 0 ? static_cast<int>(std::rint(pv[t] * (255.0f / max))) : 0;
    }
  }
}

void FillGroup(const PvArgs& args, int group, GroupP<float>& p) {
  for (int r = 0; r < args.num_rows; ++r) {
    FoldScales(args, group, r, p.codes[r]);
    p.step[r] = 1.0f;
  }
}

// Codes of one column of 16 channels, [token][channel].
template <KvCacheDtype kDtype>
void ReadColumn(const PvArgs& args, int column, CodeType<kDtype> (&codes)[kMaxTileTokens][kLanes]) {
  constexpr int kCodes = kCodesPerLane<kDtype>;
  const size_t columns = static_cast<size_t>(args.head_dim / kLanes);
  const uint8_t* line = args.v + static_cast<size_t>(column) * kUnitBytes<kDtype>;
  for (int t = 0; t < args.num_tokens; t += kCodes, line += columns * kUnitBytes<kDtype>) {
    for (int c = 0; c < kLanes; ++c) {
      for (int i = 0; i < kCodes; ++i)
        codes[t + i][c] = CodeAt<kDtype, KvSide::kValue>(line + 4 * c, i);
    }
  }
}

// What the zero points take off the sum of a row, the same for every channel of the group.
template <KvCacheDtype kDtype>
float ZeroPointSum(const PvArgs& args, int group, const CodeType<kDtype>* p) {
  float sum = 0;
  if constexpr (kDtype == KvCacheDtype::kInt4Asym) {
    for (int t = 0; t < args.num_tokens; ++t)
      sum += static_cast<float>(p[t]) * ScaleAt(args.zero_points, args, group, t);
  }
  return sum;
}

template <KvCacheDtype kDtype>
void Pv(const PvArgs& args) {
  using Code = CodeType<kDtype>;
  GroupP<Code> p;
  Code v[kMaxTileTokens][kLanes];
  for (int column = 0; column < args.head_dim / kLanes; ++column) {
    const int group = column * kLanes / args.group_size;
    if (column * kLanes % args.group_size == 0) FillGroup(args, group, p);
    ReadColumn<kDtype>(args, column, v);
    for (int r = 0; r < args.num_rows; ++r) {
      const float offset = ZeroPointSum<kDtype>(args, group, p.codes[r]);
      for (int c = 0; c < kLanes; ++c) {
        Code sum = 0;
        for (int t = 0; t < args.num_tokens; ++t) sum += p.codes[r][t] * v[t][c];
        float* out = args.out + static_cast<size_t>(r) * static_cast<size_t>(args.head_dim) +
                     column * kLanes + c;
        *out = *out * args.rescale[r] + (static_cast<float>(sum) - offset) * p.step[r];
      }
    }
  }
}

}  // namespace

void PvF32(const PvArgs& args) { Pv<KvCacheDtype::kF32>(args); }
void PvF16(const PvArgs& args) { Pv<KvCacheDtype::kF16>(args); }
void PvBf16(const PvArgs& args) { Pv<KvCacheDtype::kBf16>(args); }
void PvInt8(const PvArgs& args) { Pv<KvCacheDtype::kInt8>(args); }
void PvFp8E4m3(const PvArgs& args) { Pv<KvCacheDtype::kFp8E4m3>(args); }
void PvFp8E5m2(const PvArgs& args) { Pv<KvCacheDtype::kFp8E5m2>(args); }
void PvInt6(const PvArgs& args) { Pv<KvCacheDtype::kInt6>(args); }
void PvInt5(const PvArgs& args) { Pv<KvCacheDtype::kInt5>(args); }
void PvInt4(const PvArgs& args) { Pv<KvCacheDtype::kInt4>(args); }
void PvInt3(const PvArgs& args) { Pv<KvCacheDtype::kInt3>(args); }
void PvInt2(const PvArgs& args) { Pv<KvCacheDtype::kInt2>(args); }
void PvInt4Sym(const PvArgs& args) { Pv<KvCacheDtype::kInt4Sym>(args); }
void PvInt4Asym(const PvArgs& args) { Pv<KvCacheDtype::kInt4Asym>(args); }

}  // namespace turboquant::scalar
