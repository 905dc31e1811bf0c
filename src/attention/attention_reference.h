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
#include <vector>

#include "attention/attention_test_util.h"
#include "base/aligned_buffer.h"
#include "codec/block_mean.h"
#include "codec/rotation.h"
#include "codec/scale_fit.h"

namespace turboquant::attention_test {

// One side of a sequence in one layer, [position][num_kv_heads][head_dim].
struct ReferenceSide {
  std::vector<float> exact;  // f16 or f32 values
  std::vector<float> coded;  // decoded; closed blocks only, else 0
  std::vector<float>
      scales;  // step of the code: coded = scale * (code - zero point); 1 without scales
  std::vector<float> means;  // the part of `coded` that is the block's mean
};

class Reference {
 public:
  Reference(Harness& harness, const TestSequence& sequence, int layer)
      : geometry_(harness.options().layers[static_cast<size_t>(layer)]),
        spec_(harness.manager().config().layers[static_cast<size_t>(layer)]),
        sequence_(sequence),
        layer_(layer),
        view_(harness.manager().View(layer, sequence.id)),
        bf16_k_(harness.kernels().of(spec_.k.dtype).qk_name.ends_with("/avx512bf16")),
        bf16_v_(harness.kernels().of(spec_.v.dtype).pv_name.ends_with("/avx512bf16")) {
    Read(KvSide::kKey, &k_);
    Read(KvSide::kValue, &v_);
  }

  // Output and bound of one query head, [head_dim] each.
  struct Row {
    std::vector<double> out, bound;
  };
  Row Attend(int position, int query_head) const;

  // Byte-for-byte: the closed blocks are what the scalar codec makes of the exact values.
  bool BlocksAreEncodedExactValues() const;

 private:
  static constexpr double kUlp = 0x1p-24;
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
  size_t Index(int position, int head, int channel) const {
    return static_cast<size_t>((position * spec_.num_kv_heads + head) * spec_.head_dim + channel);
  }
  const KvSideSpec& Side(KvSide side) const { return side == KvSide::kKey ? spec_.k : spec_.v; }
  const std::vector<float>& Static(KvSide side) const {
    return side == KvSide::kKey ? view_.static_scales->k : view_.static_scales->v;
  }
  float StaticScale(KvSide side, int head, int channel) const {
    const HeadScales scales = ScalesOfHead(Side(side), Static(side), head, spec_.head_dim);
    return scales.channels == nullptr ? scales.head : scales.head * scales.channels[channel];
  }
  // Every head of a row, where the side is rotated.
  void RotateHeads(const KvSideSpec& side, std::vector<float>* row) const;
  void RotateBack(Row* row) const;
  void Read(KvSide side, ReferenceSide* data) const;
  void ReadBlock(KvSide side, int block, int head, ReferenceSide* data) const;
  std::vector<float> ExactRows(KvSide side, int block, int head) const;
  float MeanOf(const uint8_t* run, int channel) const;
  void EncodeSide(KvSide side, std::vector<float> x, int head, uint8_t* run) const;

  Geometry geometry_;
  KvCacheSpec spec_;
  TestSequence sequence_;
  int layer_;
  PagedKvView view_;
  bool bf16_k_, bf16_v_;  // kernels that multiply in bf16
  ReferenceSide k_, v_;
};

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

inline void Reference::Read(KvSide side, ReferenceSide* data) const {
  const Kind kind = side == KvSide::kKey ? Kind::kKey : Kind::kValue;
  const bool f32 = view_.tail_spec->k.dtype == KvCacheDtype::kF32;
  for (int position = 0; position < sequence_.num_tokens; ++position) {
    std::vector<float> row =
        TokenVector(kind, geometry_, sequence_.SeedAt(position), layer_, position);
    RotateHeads(Side(side), &row);
    for (const float x : row) data->exact.push_back(f32 ? x : HalfToFloat(FloatToHalf(x)));
  }
  data->coded.assign(data->exact.size(), 0.0f);
  data->scales.assign(data->exact.size(), 1.0f);
  data->means.assign(data->exact.size(), 0.0f);
  for (int block = 0; block < sequence_.num_tokens / spec_.block_size; ++block) {
    for (int head = 0; head < spec_.num_kv_heads; ++head) ReadBlock(side, block, head, data);
  }
}

// Stored mean of the keys of a run, one channel.
inline float Reference::MeanOf(const uint8_t* run, int channel) const {
  const KvBlockLayout& layout = *view_.layout;
  const int code = MeanCode(run + layout.k_mean, MeanBits(spec_.k.dtype), channel);
  return HalfToFloat(*reinterpret_cast<const uint16_t*>(run + layout.k_mean_scale)) *
         static_cast<float>(code);
}

inline void Reference::ReadBlock(KvSide side, int block, int head, ReferenceSide* data) const {
  const bool key = side == KvSide::kKey;
  const KvBlockLayout& layout = *view_.layout;
  const uint8_t* run =
      view_.Block(static_cast<size_t>(block)) + static_cast<size_t>(head) * layout.bytes_per_head;
  std::array<uint16_t, kMaxBlockTokens> expanded;
  const uint8_t* stored_scales = run + (key ? layout.k_scales : layout.v_scales);
  const auto* scales = reinterpret_cast<const uint16_t*>(stored_scales);
  if (Side(side).HasByteScales()) {
    const size_t bias = key ? layout.k_scale_bias : layout.v_scale_bias;
    ExpandScales({stored_scales, *reinterpret_cast<const int16_t*>(run + bias), spec_.block_size,
                  expanded.data()});
    scales = expanded.data();
  }
  const auto* zero_points =
      reinterpret_cast<const uint16_t*>(run + (key ? layout.k_zero_points : layout.v_zero_points));
  const auto d = static_cast<size_t>(spec_.head_dim);
  std::vector<float> x(static_cast<size_t>(spec_.block_size) * d);
  DecodeTile({.shape = {.side = side, .num_tokens = spec_.block_size, .head_dim = spec_.head_dim},
              .spec = Side(side),
              .lines = run + (key ? layout.k_lines : layout.v_lines),
              .scales = scales,
              .zero_points = zero_points,
              .static_scales = ScalesOfHead(Side(side), Static(side), head, spec_.head_dim),
              .x = x.data()});
  const int group_size = Side(side).ChannelsPerScale(spec_.head_dim);
  for (int t = 0; t < spec_.block_size; ++t) {
    for (int c = 0; c < spec_.head_dim; ++c) {
      const size_t index = Index(block * spec_.block_size + t, head, c);
      data->coded[index] = x[static_cast<size_t>(t) * d + static_cast<size_t>(c)];
      if (key && spec_.k.HasMean()) {
        data->means[index] = MeanOf(run, c);
        data->coded[index] += data->means[index];
      }
      if (IsDynamic(Side(side).granularity)) {
        data->scales[index] = HalfToFloat(scales[c / group_size * spec_.block_size + t]);
      } else if (IsStatic(Side(side).granularity)) {
        data->scales[index] = StaticScale(side, head, c);
      }
    }
  }
}

inline std::vector<float> Reference::ExactRows(KvSide side, int block, int head) const {
  const ReferenceSide& data = side == KvSide::kKey ? k_ : v_;
  std::vector<float> x;
  for (int t = 0; t < spec_.block_size; ++t) {
    const float* row = data.exact.data() + Index(block * spec_.block_size + t, head, 0);
    x.insert(x.end(), row, row + spec_.head_dim);
  }
  return x;
}

// Exact values of a block to the run of one KV head, by the codec's plain code.
inline void Reference::EncodeSide(KvSide side, std::vector<float> x, int head, uint8_t* run) const {
  const KvBlockLayout& layout = *view_.layout;
  const bool key = side == KvSide::kKey;
  const auto f16_at = [run](size_t offset) { return reinterpret_cast<uint16_t*>(run + offset); };
  if (key && spec_.k.HasMean()) {
    CenterKeys({x.data(), spec_.block_size, spec_.head_dim, MeanBits(spec_.k.dtype),
                run + layout.k_mean, f16_at(layout.k_mean_scale)});
  }
  const size_t scales_at = key ? layout.k_scales : layout.v_scales;
  std::array<uint16_t, kMaxBlockTokens> fitted;
  uint16_t* scales = f16_at(scales_at);
  if (Side(side).HasByteScales()) {
    FitScales({Side(side).dtype, x.data(), spec_.block_size, spec_.head_dim, run + scales_at,
               reinterpret_cast<int16_t*>(run + (key ? layout.k_scale_bias : layout.v_scale_bias)),
               fitted.data()});
    scales = fitted.data();
  }
  EncodeTile({.shape = {.side = side, .num_tokens = spec_.block_size, .head_dim = spec_.head_dim},
              .spec = Side(side),
              .x = x.data(),
              .static_scales = ScalesOfHead(Side(side), Static(side), head, spec_.head_dim),
              .lines = run + (key ? layout.k_lines : layout.v_lines),
              .scales = scales,
              .zero_points = f16_at(key ? layout.k_zero_points : layout.v_zero_points),
              .end_codes = nullptr});
}

inline bool Reference::BlocksAreEncodedExactValues() const {
  const KvBlockLayout& layout = *view_.layout;
  for (int block = 0; block < sequence_.num_tokens / spec_.block_size; ++block) {
    for (int head = 0; head < spec_.num_kv_heads; ++head) {
      const uint8_t* run = view_.Block(static_cast<size_t>(block)) +
                           static_cast<size_t>(head) * layout.bytes_per_head;
      AlignedBuffer<uint8_t> expected(layout.bytes_per_head);
      // Padding is nobody's: it is compared with itself.
      std::copy_n(run, layout.bytes_per_head, expected.data());
      for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
        EncodeSide(side, ExactRows(side, block, head), head, expected.data());
      }
      if (!std::equal(run, run + layout.bytes_per_head, expected.data())) return false;
    }
  }
  return true;
}

inline Reference::Weights Reference::WeightsOf(int position, int query_head) const {
  const int head = query_head / geometry_.group;
  const double scale = static_cast<double>(1.0f / std::sqrt(static_cast<float>(spec_.head_dim)));
  auto q_all = TokenVector(Kind::kQuery, geometry_, sequence_.SeedAt(position), layer_, position);
  RotateHeads(spec_.k, &q_all);
  const float* q = q_all.data() + static_cast<std::ptrdiff_t>(query_head) * spec_.head_dim;
  const bool is_static = IsStatic(spec_.k.granularity);
  double max_q = 0;  // |q'|, static scales folded in
  for (int c = 0; c < spec_.head_dim; ++c) {
    const double folded = is_static ? static_cast<double>(StaticScale(KvSide::kKey, head, c)) : 1.0;
    max_q = std::max(max_q, std::fabs(static_cast<double>(q[c])) * scale * folded);
  }
  const double query_codes =
      static_cast<double>(IsNarrow(spec_.k.dtype) ? kMaxNarrowQCode : kMaxQCode);
  Weights result;
  for (int t = FirstSeen(position); t <= position; ++t) {
    const bool exact = IsExact(t, position);
    double dot = 0, magnitude = 0, code_sum = 0;
    for (int c = 0; c < spec_.head_dim; ++c) {
      const size_t i = Index(t, head, c);
      const double value = static_cast<double>(exact ? k_.exact[i] : k_.coded[i]);
      const double product = static_cast<double>(q[c]) * value * scale;
      dot += product;
      magnitude += std::fabs(product);
      // The mean's part is not multiplied by the query's codes.
      const double coded = exact ? 0 : value - static_cast<double>(k_.means[i]);
      code_sum += std::fabs(coded) / (is_static ? static_cast<double>(k_.scales[i]) : 1.0);
    }
    double error = (spec_.head_dim + 16) * kUlp * magnitude;
    if (!exact && IsInteger(spec_.k.dtype)) error += max_q / (2 * query_codes) * code_sum;
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
      const double weight = weights.values[static_cast<size_t>(t - first)];
      const double value = static_cast<double>(exact ? v_.exact[i] : v_.coded[i]);
      out += weight * value;
      magnitude += weight * std::fabs(value);
      if (!exact && bf16_v_) rounding += 0x1p-8 * weight * std::fabs(value);
      if (t % std::min(spec_.block_size, kMaxTileTokens) == 0) tile_max = tile_codes = 0;
      if (exact || !IsInteger(spec_.v.dtype) || v_.scales[i] == 0) continue;
      const double before = tile_max * tile_codes;
      tile_max = std::max(tile_max, weight * static_cast<double>(v_.scales[i]));
      tile_codes += std::fabs(value) / static_cast<double>(v_.scales[i]);
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
