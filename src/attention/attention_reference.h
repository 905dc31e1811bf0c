// For tests: attention in double precision, straight from the rule in paged_attention.h, on the
// decoded codes that lie in the cache; and how far a correct implementation may be away from it.
//
// Bound of one output channel, u = 2^-24, w = softmax weights, n = keys:
//   logit      d = (head_dim + 16) u sum_c |q_c k_c| scale                          any order of
//   summation, folded scales
//                + integer codes: max_c |q'_c| / 65024 * sum_c |k_c| / static_c      q' = q * scale
//                * static: half a step (narrow codes: 254); k without the block's mean
//                + bf16 dot products: 2^-16 sum_c |q_c k_c| scale                    q as two bf16
//                terms
//                + cap * 2^-20 where a soft cap is set                               tanh
//   weights    relative r = exp(2 d) - 1 + 2 (2^-20 + 128 u)                         exp and its
//   argument, up to 64 output     r * sum w |v| + (n + 64) u sum w |v| products, sums, merges
//                + integer codes, per tile: max_t (w s)_t / 510 * sum_t |v| / s_t    half a step of
//                the u8 probabilities
//                + bf16 dot products: 2^-8 sum w |v|                                 probabilities
//                rounded to bf16
//   rotation   rotated sides are taken rotated throughout; the output and its bound are rotated
//   back
#ifndef TURBOQUANT_ATTENTION_ATTENTION_REFERENCE_H_
#define TURBOQUANT_ATTENTION_ATTENTION_REFERENCE_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention_test_util.h"
#include "base/aligned_buffer.h"
#include "codec/block_mean.h"
#include "codec/block_scale.h"
#include "codec/rotation.h"
#include "codec/scale_fit.h"
#include "codec/stored_run.h"

namespace turboquant::attention_test {

// One side of a sequence in one layer, [position][num_kv_heads][head_dim].
struct ReferenceSide {
  std::vector<float> exact;  // f16 or f32 values
  std::vector<float> coded;  // decoded; closed blocks only, else 0
  std::vector<float>
      scales;  // step of the code: coded = scale * (code - zero point); 1 without scales
  std::vector<float> means;  // the part of `coded` that is the block's mean
};

// What keys and values of closed blocks are read from: narrow codes, or copies of recent blocks.
struct ReferenceFormat {
  explicit ReferenceFormat(const KvCacheSpec& format_spec)
      : spec(format_spec), layout(format_spec) {}
  const KvSideSpec& Side(KvSide side) const { return side == KvSide::kKey ? spec.k : spec.v; }
  const ReferenceSide& Of(KvSide side) const { return side == KvSide::kKey ? k : v; }
  KvCacheSpec spec;
  KvBlockLayout layout;
  ReferenceSide k, v;
};

class Reference {
 public:
  Reference(Harness& harness, const TestSequence& sequence, int layer)
      : geometry_(harness.options().layers[static_cast<size_t>(layer)]),
        spec_(harness.manager().config().layers[static_cast<size_t>(layer)]),
        sequence_(sequence),
        layer_(layer),
        view_(harness.manager().View(layer, sequence.id)),
        coded_(spec_),
        recent_(RecentSpec(spec_).value_or(spec_)),
        bf16_k_(harness.kernels().of(spec_.k.dtype).qk_name.ends_with("/avx512bf16")),
        bf16_v_(harness.kernels().of(spec_.v.dtype).pv_name.ends_with("/avx512bf16")) {
    Read(&coded_);
    if (view_.recent_blocks > 0) Read(&recent_);
  }

  // Output and bound of one query head, [head_dim] each.
  struct Row {
    std::vector<double> out, bound;
  };
  Row Attend(int position, int query_head) const;

  // Byte-for-byte: the closed blocks, and the copies of the newest ones, are what the scalar codec
  // makes of the exact values.
  bool BlocksAreEncodedExactValues() const;

  // Of a token in a closed block: [num_kv_heads][head_dim].
  std::span<const float> Exact(KvSide side, int position) const {
    return TokenRow(coded_.Of(side).exact, position);
  }
  std::span<const float> Coded(KvSide side, int position) const {
    return TokenRow(coded_.Of(side).coded, position);
  }

 private:
  static constexpr double kUlp = 0x1p-24;
  std::span<const float> TokenRow(const std::vector<float>& side, int position) const {
    const auto width = static_cast<size_t>(spec_.num_kv_heads * spec_.head_dim);
    return std::span(side).subspan(static_cast<size_t>(position) * width, width);
  }
  struct Weights {
    std::vector<double> values;  // of keys FirstSeen(position) .. position
    double logit_error = 0;      // the largest over the keys
  };
  Weights WeightsOf(int position, int query_head) const;
  int FirstSeen(int position) const {
    return geometry_.sliding_window > 0 ? std::max(0, position - geometry_.sliding_window + 1) : 0;
  }
  bool IsExact(int key, int position) const {
    return key / spec_.block_size == position / spec_.block_size || key < view_.num_sink_tokens;
  }
  // The format that a query at `position` reads a key of a closed block in.
  const ReferenceFormat& FormatOf(int key, int position) const {
    const int distance = position / spec_.block_size - key / spec_.block_size;
    return view_.recent_blocks > 0 && distance <= view_.recent_blocks ? recent_ : coded_;
  }
  size_t Index(int position, int head, int channel) const {
    return static_cast<size_t>((position * spec_.num_kv_heads + head) * spec_.head_dim + channel);
  }
  const std::vector<float>& Static(KvSide side) const {
    return side == KvSide::kKey ? view_.static_scales->k : view_.static_scales->v;
  }
  float StaticScale(KvSide side, int head, int channel) const {
    const HeadScales scales = ScalesOfHead(coded_.Side(side), Static(side), head, spec_.head_dim);
    return scales.channels == nullptr ? scales.head : scales.head * scales.channels[channel];
  }
  // Every channel of a row of keys (or queries: divided), where K is balanced.
  void BalanceKeys(std::vector<float>* row) const;
  void BalanceQueries(std::vector<float>* row) const;
  // Every head of a row, where the side is rotated.
  void RotateHeads(const KvSideSpec& side, std::vector<float>* row) const;
  void RotateBack(Row* row) const;
  void Read(ReferenceFormat* format) const {
    ReadSide(KvSide::kKey, *format, &format->k);
    ReadSide(KvSide::kValue, *format, &format->v);
  }
  void ReadSide(KvSide side, const ReferenceFormat& format, ReferenceSide* data) const;
  void ReadBlock(KvSide side, const ReferenceFormat& format, int block, int head,
                 ReferenceSide* data) const;
  std::vector<float> ExactRows(const ReferenceSide& data, int block, int head) const;
  static float MeanOf(const ReferenceFormat& format, const uint8_t* run, int channel);
  void EncodeSide(KvSide side, const ReferenceFormat& format, std::vector<float> x, int head,
                  uint8_t* run) const;
  bool IsEncoded(const ReferenceFormat& format, const uint8_t* block_bytes, int block) const;

  Geometry geometry_;
  KvCacheSpec spec_;
  TestSequence sequence_;
  int layer_;
  PagedKvView view_;
  ReferenceFormat coded_, recent_;
  bool bf16_k_, bf16_v_;  // kernels that multiply in bf16
};

inline void Reference::BalanceKeys(std::vector<float>* row) const {
  const std::vector<float>& balance = view_.static_scales->k_balance;
  for (size_t i = 0; i < balance.size(); ++i) (*row)[i] *= balance[i];
}
inline void Reference::BalanceQueries(std::vector<float>* row) const {
  const std::vector<float>& balance = view_.static_scales->k_balance;
  if (balance.empty()) return;
  const auto d = static_cast<size_t>(spec_.head_dim);
  for (size_t i = 0; i < row->size(); ++i) {
    (*row)[i] /= balance[i / d / static_cast<size_t>(geometry_.group) * d + i % d];
  }
}

inline void Reference::RotateHeads(const KvSideSpec& side, std::vector<float>* row) const {
  if (!IsRotated(side.transform)) return;
  const auto stride = static_cast<size_t>(spec_.head_dim);
  Rotate({.in = row->data(),
          .in_stride = stride,
          .out = row->data(),
          .out_stride = stride,
          .num_rows = static_cast<int>(row->size() / stride),
          .head_dim = spec_.head_dim,
          .inverse = false});
}

// The output in the model's own frame, by the matrix: (-1)^popcount(i & j) / sqrt(n). A channel may
// be off by the mean bound of its n, plus one rounding per stage and factor.
inline void Reference::RotateBack(Row* row) const {
  if (!IsRotated(spec_.v.transform)) return;
  const Row rotated = *row;
  const int n = RotationSize(spec_.head_dim);
  const double norm = 1 / std::sqrt(static_cast<double>(n));
  for (int c = 0; c < spec_.head_dim; ++c) {
    double out = 0, bound = 0, magnitude = 0;
    for (int j = 0; j < n; ++j) {
      const auto from = static_cast<size_t>(c / n * n + j);
      const bool odd = __builtin_popcount(static_cast<unsigned>(c % n & j)) % 2 != 0;
      out += (odd ? -norm : norm) * rotated.out[from];
      bound += norm * rotated.bound[from];
      magnitude += norm * std::fabs(rotated.out[from]);
    }
    const auto channel = static_cast<size_t>(c);
    row->out[channel] = out * static_cast<double>(kRotationSigns[channel]);
    row->bound[channel] = bound + 12 * kUlp * magnitude;
  }
}

// Codes are made here of the exact values; BlocksAreEncodedExactValues says that the cache has the
// same ones.
inline void Reference::ReadSide(KvSide side, const ReferenceFormat& format,
                                ReferenceSide* data) const {
  const Kind kind = side == KvSide::kKey ? Kind::kKey : Kind::kValue;
  const bool f32 = view_.tail_spec->k.dtype == KvCacheDtype::kF32;
  for (int position = 0; position < sequence_.num_tokens; ++position) {
    std::vector<float> row =
        TokenVector(kind, geometry_, sequence_.SeedAt(position), layer_, position);
    if (side == KvSide::kKey) BalanceKeys(&row);
    RotateHeads(format.Side(side), &row);
    for (const float x : row) data->exact.push_back(f32 ? x : HalfToFloat(FloatToHalf(x)));
  }
  data->coded.assign(data->exact.size(), 0.0f);
  data->scales.assign(data->exact.size(), 1.0f);
  data->means.assign(data->exact.size(), 0.0f);
  for (int block = 0; block < sequence_.num_tokens / spec_.block_size; ++block) {
    for (int head = 0; head < spec_.num_kv_heads; ++head) {
      ReadBlock(side, format, block, head, data);
    }
  }
}

// Stored mean of the keys of a run, one channel.
inline float Reference::MeanOf(const ReferenceFormat& format, const uint8_t* run, int channel) {
  const int code = MeanCode(run + format.layout.k_mean, MeanBits(format.spec.k.dtype), channel);
  return HalfToFloat(*reinterpret_cast<const uint16_t*>(run + format.layout.k_mean_scale)) *
         static_cast<float>(code);
}

inline void Reference::ReadBlock(KvSide side, const ReferenceFormat& format, int block, int head,
                                 ReferenceSide* data) const {
  const bool key = side == KvSide::kKey;
  const KvBlockLayout& layout = format.layout;
  const KvSideSpec& side_spec = format.Side(side);
  AlignedBuffer<uint8_t> encoded(layout.bytes_per_head);
  uint8_t* run = encoded.data();
  EncodeSide(side, format, ExactRows(*data, block, head), head, run);
  std::array<uint16_t, kMaxBlockTokens> expanded;
  const uint8_t* stored_scales = run + (key ? layout.k_scales : layout.v_scales);
  const auto* scales = reinterpret_cast<const uint16_t*>(stored_scales);
  if (side_spec.HasByteScales()) {
    const size_t bias = key ? layout.k_scale_bias : layout.v_scale_bias;
    ExpandScales({stored_scales, *reinterpret_cast<const int16_t*>(run + bias), spec_.block_size,
                  expanded.data()});
    scales = expanded.data();
  }
  const auto* zero_points =
      reinterpret_cast<const uint16_t*>(run + (key ? layout.k_zero_points : layout.v_zero_points));
  const auto d = static_cast<size_t>(spec_.head_dim);
  std::vector<float> x(static_cast<size_t>(spec_.block_size) * d);
  const uint16_t factor = side_spec.HasBlockScale()
                              ? *reinterpret_cast<const uint16_t*>(
                                    run + (key ? layout.k_block_scale : layout.v_block_scale))
                              : kNoCorrection;
  std::array<float, kMaxHeadDimOfSpec> channels;
  DecodeTile({.shape = {.side = side, .num_tokens = spec_.block_size, .head_dim = spec_.head_dim},
              .spec = side_spec,
              .lines = run + (key ? layout.k_lines : layout.v_lines),
              .scales = scales,
              .zero_points = zero_points,
              .static_scales = ScaledBy(ScalesOfHead(side_spec, Static(side), head, spec_.head_dim),
                                        factor, spec_.head_dim, &channels),
              .x = x.data()});
  const int group_size = side_spec.ChannelsPerScale(spec_.head_dim);
  for (int t = 0; t < spec_.block_size; ++t) {
    for (int c = 0; c < spec_.head_dim; ++c) {
      const size_t index = Index(block * spec_.block_size + t, head, c);
      data->coded[index] = x[static_cast<size_t>(t) * d + static_cast<size_t>(c)];
      if (key && format.spec.k.HasMean()) {
        data->means[index] = MeanOf(format, run, c);
        data->coded[index] += data->means[index];
      }
      if (IsPerToken(side_spec.granularity)) {
        data->scales[index] = HalfToFloat(scales[c / group_size * spec_.block_size + t]);
      } else if (IsStatic(side_spec.granularity)) {
        data->scales[index] = StaticScale(side, head, c);  // a correction cancels out
      } else if (side_spec.HasBlockScale()) {
        data->scales[index] = HalfToFloat(factor);
      }
    }
  }
}

inline std::vector<float> Reference::ExactRows(const ReferenceSide& data, int block,
                                               int head) const {
  std::vector<float> x;
  for (int t = 0; t < spec_.block_size; ++t) {
    const float* row = data.exact.data() + Index(block * spec_.block_size + t, head, 0);
    x.insert(x.end(), row, row + spec_.head_dim);
  }
  return x;
}

// Exact values of a block to the run of one KV head, by the codec's plain code.
inline void Reference::EncodeSide(KvSide side, const ReferenceFormat& format, std::vector<float> x,
                                  int head, uint8_t* run) const {
  WriteRun({.spec = &format.spec,
            .layout = &format.layout,
            .side = side,
            .x = x.data(),
            .static_scales = ScalesOfHead(format.Side(side), Static(side), head, spec_.head_dim),
            .run = run});
}

inline bool Reference::IsEncoded(const ReferenceFormat& format, const uint8_t* block_bytes,
                                 int block) const {
  const size_t bytes = format.layout.bytes_per_head;
  for (int head = 0; head < spec_.num_kv_heads; ++head) {
    const uint8_t* run = block_bytes + static_cast<size_t>(head) * bytes;
    AlignedBuffer<uint8_t> expected(bytes);
    // Padding is nobody's: it is compared with itself.
    std::copy_n(run, bytes, expected.data());
    EncodeSide(KvSide::kKey, format, ExactRows(format.k, block, head), head, expected.data());
    EncodeSide(KvSide::kValue, format, ExactRows(format.v, block, head), head, expected.data());
    if (!std::equal(run, run + bytes, expected.data())) return false;
  }
  return true;
}

inline bool Reference::BlocksAreEncodedExactValues() const {
  const int closed = sequence_.num_tokens / spec_.block_size;
  for (int block = 0; block < closed; ++block) {
    const auto index = static_cast<size_t>(block);
    if (!IsEncoded(coded_, view_.Block(index), block)) return false;
    if (block + view_.recent_blocks < closed) continue;
    if (!IsEncoded(recent_, view_.RecentBlock(index), block)) return false;
  }
  return true;
}

inline Reference::Weights Reference::WeightsOf(int position, int query_head) const {
  const int head = query_head / geometry_.group;
  const double scale = static_cast<double>(1.0f / std::sqrt(static_cast<float>(spec_.head_dim)));
  auto q_all = TokenVector(Kind::kQuery, geometry_, sequence_.SeedAt(position), layer_, position);
  BalanceQueries(&q_all);
  RotateHeads(spec_.k, &q_all);
  const float* q = q_all.data() + static_cast<std::ptrdiff_t>(query_head) * spec_.head_dim;
  const bool is_static = IsStatic(spec_.k.granularity);
  double max_q = 0;  // |q'|, static scales folded in
  for (int c = 0; c < spec_.head_dim; ++c) {
    const double folded = is_static ? static_cast<double>(StaticScale(KvSide::kKey, head, c)) : 1.0;
    max_q = std::max(max_q, std::fabs(static_cast<double>(q[c])) * scale * folded);
  }
  Weights result;
  for (int t = FirstSeen(position); t <= position; ++t) {
    const bool exact = IsExact(t, position);
    const ReferenceFormat& format = FormatOf(t, position);
    const KvCacheDtype dtype = format.spec.k.dtype;
    double dot = 0, magnitude = 0, code_sum = 0;
    for (int c = 0; c < spec_.head_dim; ++c) {
      const size_t i = Index(t, head, c);
      const double value = static_cast<double>(exact ? format.k.exact[i] : format.k.coded[i]);
      const double product = static_cast<double>(q[c]) * value * scale;
      dot += product;
      magnitude += std::fabs(product);
      // The mean's part is not multiplied by the query's codes.
      const double coded = exact ? 0 : value - static_cast<double>(format.k.means[i]);
      code_sum += std::fabs(coded) / (is_static ? static_cast<double>(format.k.scales[i]) : 1.0);
    }
    double error = (spec_.head_dim + 16) * kUlp * magnitude;
    const float query_codes = IsNarrow(dtype) ? kMaxNarrowQCode : kMaxQCode;
    if (!exact && IsInteger(dtype)) {
      error += max_q / (2 * static_cast<double>(query_codes)) * code_sum;
    }
    if (!exact && bf16_k_) error += 0x1p-16 * magnitude;
    if (geometry_.logit_softcap > 0) {
      const double cap = static_cast<double>(geometry_.logit_softcap);
      dot = cap * std::tanh(dot / cap);
      error += cap * 0x1p-20;
    }
    result.logit_error = std::max(result.logit_error, error);
    result.values.push_back(dot);
  }
  const double max_logit = std::ranges::max(result.values);
  double sum = 0;
  for (double& weight : result.values) sum += weight = std::exp(weight - max_logit);
  for (double& weight : result.values) weight /= sum;
  return result;
}

inline Reference::Row Reference::Attend(int position, int query_head) const {
  const int head = query_head / geometry_.group;
  const int first = FirstSeen(position);
  const Weights weights = WeightsOf(position, query_head);
  const double relative = std::exp(2 * weights.logit_error) - 1 + 2 * (0x1p-20 + 128 * kUlp);
  Row row;
  for (int c = 0; c < spec_.head_dim; ++c) {
    double out = 0, magnitude = 0, rounding = 0;
    double tile_max = 0, tile_codes = 0;
    for (int t = first; t <= position; ++t) {
      const size_t i = Index(t, head, c);
      const bool exact = IsExact(t, position);
      const ReferenceFormat& format = FormatOf(t, position);
      const ReferenceSide& v = format.v;
      const double weight = weights.values[static_cast<size_t>(t - first)];
      const double value = static_cast<double>(exact ? v.exact[i] : v.coded[i]);
      out += weight * value;
      magnitude += weight * std::fabs(value);
      if (!exact && bf16_v_) rounding += 0x1p-8 * weight * std::fabs(value);
      if (t % std::min(spec_.block_size, kMaxTileTokens) == 0) tile_max = tile_codes = 0;
      if (exact || !IsInteger(format.spec.v.dtype) || v.scales[i] == 0) continue;
      const double before = tile_max * tile_codes;
      tile_max = std::max(tile_max, weight * static_cast<double>(v.scales[i]));
      tile_codes += std::fabs(value) / static_cast<double>(v.scales[i]);
      rounding += (tile_max * tile_codes - before) / 510;
    }
    row.out.push_back(out);
    row.bound.push_back(relative * magnitude + (position - first + 65) * kUlp * magnitude +
                        rounding);
  }
  RotateBack(&row);
  return row;
}

}  // namespace turboquant::attention_test

#endif  // TURBOQUANT_ATTENTION_ATTENTION_REFERENCE_H_
