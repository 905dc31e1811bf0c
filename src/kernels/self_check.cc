#include "kernels/self_check.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "kernels/sample_weights.h"

namespace turboquant {
namespace {

constexpr int kTokens = 64, kHeadDim = 128, kRows = 4;
constexpr size_t kValues = size_t{kTokens} * kHeadDim;
// Of the product of the norms. Float sums of 128 terms err by 128 x 2^-24, two bf16 terms of q by
// 2^-16; a wrong lane or scale errs by whole terms.
constexpr double kTolerance = 0x1p-12;

// One tile of keys or values in a format, and queries and weights for it.
struct Data {
  std::vector<float> x, q, p;  // [tokens][head_dim], [rows][head_dim], [rows][kMaxTileTokens]
  AlignedBuffer<uint8_t> lines{kValues * 4};
  std::vector<uint16_t> scales, zero_points;
  KvSideSpec spec;
  KvSide side = KvSide::kKey;
};

Data MakeData(KvCacheDtype dtype, KvSide side) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Data data;
  data.side = side;
  data.spec = {.dtype = dtype, .granularity = DefaultGranularity(dtype)};
  data.x.resize(kValues);
  for (float& value : data.x) value = normal(random);
  data.q.resize(size_t{kRows} * kHeadDim);
  for (float& value : data.q) value = normal(random);
  data.p.resize(size_t{kRows} * kMaxTileTokens);
  for (float& value : data.p) value = std::abs(normal(random)) / 4;
  data.scales.resize(kTokens);
  data.zero_points.resize(kTokens);
  return data;
}

void Encode(EncodeFn encode, Data* data) {
  if (data->spec.HasByteScales()) {
    uint8_t codes[kTokens];
    int16_t bias;
    FitScales(
        {data->spec.dtype, data->x.data(), kTokens, kHeadDim, codes, &bias, data->scales.data()});
  }
  encode({.shape = {data->side, kTokens, kHeadDim},
          .spec = data->spec,
          .x = data->x.data(),
          .static_scales = {},
          .lines = data->lines.data(),
          .scales = data->scales.data(),
          .zero_points = data->zero_points.data(),
          .end_codes = nullptr});
}

// Null where the format keeps none in the block.
const uint16_t* ScalesOf(const Data& data) {
  return IsPerToken(data.spec.granularity) ? data.scales.data() : nullptr;
}
const uint16_t* ZeroPointsOf(const Data& data) {
  return data.spec.HasZeroPoint() ? data.zero_points.data() : nullptr;
}

double Norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// The largest difference; infinite where one of them is NaN.
double Difference(std::span<const float> a, std::span<const float> b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = difference <= most ? most : difference;
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
  }
  return most;
}

// The row that does the same in plain code, or prepares for `row`.
const KernelRow& RowLike(const KernelRow& row, KernelOp op, bool scalar) {
  for (const KernelRow& other : AllKernelRows()) {
    const bool like = scalar ? other.isa == Isa::kScalar
                             : other.isa == row.isa && other.requires_features.ToString() ==
                                                           row.requires_features.ToString();
    if (other.op == op && other.dtype == row.dtype && like) return other;
  }
  CHECK(false);
  return row;
}

class RowTest {
 public:
  explicit RowTest(const KernelRow& row)
      : row_(row), prepared_(size_t{kRows} * PreparedQBytes(kHeadDim, kHeadDim)) {}

  // Compares once, then repeats for `seconds` to time it.
  SelfCheckRow Run(double seconds) {
    SelfCheckRow result{.name = row_.name, .op = row_.op};
    double bytes = 4.0 * kValues;
    switch (row_.op) {
      case KernelOp::kPrepareQ:
      case KernelOp::kQk:
        result.ok = TestQk();
        bytes = kValues * CodeBits(row_.dtype) / 8.0;
        break;
      case KernelOp::kPv:
        result.ok = TestPv();
        bytes = kValues * CodeBits(row_.dtype) / 8.0;
        break;
      case KernelOp::kSoftmax:
        result.ok = TestSoftmax();
        bytes = 4.0 * kRows * kMaxTileTokens;
        break;
      case KernelOp::kEncode:
        result.ok = TestEncode();
        break;
      case KernelOp::kToHalf:
        result.ok = TestToHalf();
        break;
      case KernelOp::kRotate:
        result.ok = TestRotate();
        break;
      case KernelOp::kFitScales:
        result.ok = TestFitScales();
        break;
      case KernelOp::kExpandScales:
        result.ok = TestExpandScales();
        bytes = kTokens;
        break;
      case KernelOp::kMeanDot:
        result.ok = TestMeanDot();
        bytes = 4.0 * kRows * kHeadDim;
        break;
      case KernelOp::kQuantizeRow:
        result.ok = TestQuantizeRow();
        break;
      case KernelOp::kMatmul:
        result.ok = TestMatmul();
        bytes = static_cast<double>(weights_.size());
        break;
    }
    result.gb_per_second = bytes / SecondsPerCall(seconds) / 1e9;
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  double SecondsPerCall(double seconds) const {
    const auto start = Clock::now();
    double passed = 0;
    int64_t calls = 0;
    do {
      for (int i = 0; i < 16; ++i) repeat_();
      calls += 16;
      passed = std::chrono::duration<double>(Clock::now() - start).count();
    } while (passed < seconds);
    return passed / static_cast<double>(calls);
  }

  std::vector<float> Scores(const KernelRow& prepare, const KernelRow& qk) {
    prepare.prepare_q({.q = data_.q.data(),
                       .q_stride = kHeadDim,
                       .num_rows = kRows,
                       .head_dim = kHeadDim,
                       .group_size = kHeadDim,
                       .scale = 1,
                       .channel_scales = nullptr,
                       .out = prepared_.data()});
    out_.assign(size_t{kRows} * kMaxTileTokens, 0);
    repeat_ = [this, &qk] {
      qk.qk({.q = prepared_.data(),
             .k = data_.lines.data(),
             .scales = ScalesOf(data_),
             .zero_points = ZeroPointsOf(data_),
             .scale_stride = kTokens,
             .num_rows = kRows,
             .num_tokens = kTokens,
             .head_dim = kHeadDim,
             .group_size = kHeadDim,
             .scores = out_.data(),
             .offsets = nullptr,
             .prefetch = nullptr});
    };
    repeat_();
    return out_;
  }

  bool TestQk() {
    data_ = MakeData(row_.dtype, KvSide::kKey);
    Encode(EncodeTile, &data_);
    const auto plain =
        Scores(RowLike(row_, KernelOp::kPrepareQ, true), RowLike(row_, KernelOp::kQk, true));
    const auto found =
        Scores(RowLike(row_, KernelOp::kPrepareQ, false), RowLike(row_, KernelOp::kQk, false));
    return Difference(plain, found) <= kTolerance * Norm(data_.q) * Norm(data_.x);
  }

  std::vector<float> Outputs(const KernelRow& pv) {
    out_.assign(size_t{kRows} * kHeadDim, 0);
    const auto call = [this, &pv] {
      pv.pv({.p = data_.p.data(),
             .v = data_.lines.data(),
             .scales = ScalesOf(data_),
             .zero_points = ZeroPointsOf(data_),
             .scale_stride = kTokens,
             .num_rows = kRows,
             .num_tokens = kTokens,
             .head_dim = kHeadDim,
             .group_size = kHeadDim,
             .rescale = rescale_.data(),
             .out = out_.data(),
             .prefetch = nullptr});
    };
    rescale_.assign(kRows, 0.0f);  // out = p v, however often it is called
    call();
    repeat_ = call;
    return out_;
  }

  bool TestPv() {
    data_ = MakeData(row_.dtype, KvSide::kValue);
    Encode(EncodeTile, &data_);
    const auto plain = Outputs(RowLike(row_, KernelOp::kPv, true));
    const auto found = Outputs(row_);
    return Difference(plain, found) <= kTolerance * Norm(data_.p) * Norm(data_.x);
  }

  struct SoftmaxState {
    std::vector<float> scores, max, sum, rescale;
  };
  SoftmaxState Softmax(const KernelRow& row) {
    static constexpr std::array<int, kRows> kBegin = {0, 3, 0, 17}, kEnd = {64, 64, 1, 50};
    softmax_ = {std::vector<float>(data_.q.begin(), data_.q.begin() + kRows * kMaxTileTokens),
                std::vector<float>(kRows, -std::numeric_limits<float>::infinity()),
                std::vector<float>(kRows, 0.0f), std::vector<float>(kRows, 1.0f)};
    repeat_ = [this, &row] {
      row.softmax({.scores = softmax_.scores.data(),
                   .begin = kBegin.data(),
                   .end = kEnd.data(),
                   .num_rows = kRows,
                   .num_tokens = kTokens,
                   .logit_softcap = 0,
                   .max = softmax_.max.data(),
                   .sum = softmax_.sum.data(),
                   .rescale = softmax_.rescale.data()});
    };
    repeat_();
    return softmax_;
  }

  bool TestSoftmax() {
    data_ = MakeData(KvCacheDtype::kF32, KvSide::kKey);
    const SoftmaxState plain = Softmax(RowLike(row_, KernelOp::kSoftmax, true));
    const SoftmaxState found = Softmax(row_);
    return Difference(plain.scores, found.scores) <= kTolerance && plain.max == found.max &&
           Difference(plain.sum, found.sum) <= kTolerance * kTokens;
  }

  bool TestEncode() {
    bool same = true;
    for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
      Data plain = MakeData(row_.dtype, side);
      Encode(EncodeTile, &plain);
      data_ = MakeData(row_.dtype, side);
      Encode(row_.encode, &data_);
      same = same && std::memcmp(plain.lines.data(), data_.lines.data(), plain.lines.size()) == 0 &&
             plain.scales == data_.scales && plain.zero_points == data_.zero_points;
    }
    repeat_ = [this] { Encode(row_.encode, &data_); };
    return same;
  }

  bool TestToHalf() {
    data_ = MakeData(KvCacheDtype::kF32, KvSide::kKey);
    std::vector<uint16_t> plain(kValues);
    half_.resize(kValues);
    RowLike(row_, KernelOp::kToHalf, true).to_half({data_.x.data(), plain.data(), kValues});
    repeat_ = [this] { row_.to_half({data_.x.data(), half_.data(), kValues}); };
    repeat_();
    return plain == half_;
  }

  std::vector<float> Rotated(RotateFn rotate) {
    out_.assign(kValues, 0);
    repeat_ = [this, rotate] {
      rotate({.in = data_.x.data(),
              .in_stride = kHeadDim,
              .out = out_.data(),
              .out_stride = kHeadDim,
              .num_rows = kTokens,
              .head_dim = kHeadDim,
              .inverse = false});
    };
    repeat_();
    return out_;
  }

  bool TestFitScales() {
    bool same = true;
    for (const KvCacheDtype dtype :
         {KvCacheDtype::kInt8, KvCacheDtype::kInt6, KvCacheDtype::kInt4}) {
      data_ = MakeData(dtype, KvSide::kKey);
      int16_t plain_bias, bias;
      std::vector<uint8_t> plain(kTokens), codes(kTokens);
      std::vector<uint16_t> plain_scales(kTokens);
      FitScales({dtype, data_.x.data(), kTokens, kHeadDim, plain.data(), &plain_bias,
                 plain_scales.data()});
      row_.fit_scales(
          {dtype, data_.x.data(), kTokens, kHeadDim, codes.data(), &bias, data_.scales.data()});
      same = same && plain == codes && plain_bias == bias && plain_scales == data_.scales;
    }
    repeat_ = [this] {
      uint8_t codes[kTokens];
      int16_t bias;
      row_.fit_scales(
          {data_.spec.dtype, data_.x.data(), kTokens, kHeadDim, codes, &bias, data_.scales.data()});
    };
    return same;
  }

  bool TestExpandScales() {
    data_ = MakeData(KvCacheDtype::kInt8, KvSide::kKey);
    byte_scales_.resize(kTokens);
    for (size_t t = 0; t < kTokens; ++t) byte_scales_[t] = static_cast<uint8_t>(4 * t + t % 3);
    constexpr int16_t kBias = -3000;
    std::vector<uint16_t> plain(kTokens);
    ExpandScales({byte_scales_.data(), kBias, kTokens, plain.data()});
    repeat_ = [this] {
      row_.expand_scales({byte_scales_.data(), kBias, kTokens, data_.scales.data()});
    };
    repeat_();
    return plain == data_.scales;
  }

  std::vector<float> MeanScores(MeanDotFn mean_dot, int mean_bits) {
    out_.assign(kRows, 0);
    repeat_ = [this, mean_dot, mean_bits] {
      mean_dot({.q = data_.q.data(),
                .q_stride = kHeadDim,
                .num_rows = kRows,
                .head_dim = kHeadDim,
                .mean_bits = mean_bits,
                .codes = byte_scales_.data(),
                .scale = 1.0f,
                .out = out_.data()});
    };
    repeat_();
    return out_;
  }

  bool TestMeanDot() {
    data_ = MakeData(KvCacheDtype::kInt8, KvSide::kKey);
    byte_scales_.resize(kHeadDim);
    for (size_t c = 0; c < kHeadDim; ++c) byte_scales_[c] = static_cast<uint8_t>(37 * c + 1);
    bool near = true;
    for (const int mean_bits : {8, 4}) {
      const std::vector<float> plain = MeanScores(MeanDot, mean_bits);
      near = near && Difference(plain, MeanScores(row_.mean_dot, mean_bits)) <=
                         kTolerance * Norm(data_.q) * 128;
    }
    return near;
  }

  bool TestRotate() {
    data_ = MakeData(KvCacheDtype::kF32, KvSide::kKey);
    const std::vector<float> plain = Rotated(Rotate);
    return plain == Rotated(row_.rotate);
  }

  bool TestQuantizeRow() {
    data_ = MakeData(KvCacheDtype::kF32, KvSide::kKey);
    std::vector<uint8_t> plain(QuantizedRowBytes(kValues));
    quantized_.resize(plain.size());
    MatmulOf(Isa::kScalar).quantize(data_.x.data(), kValues, plain.data());
    repeat_ = [this] { row_.quantize_row(data_.x.data(), kValues, quantized_.data()); };
    repeat_();
    return plain == quantized_;
  }

  std::vector<float> Products(MatmulFn matmul, int num_rows) {
    out_.assign(static_cast<size_t>(num_rows) * kOutputs, 0);
    repeat_ = [this, matmul, num_rows] {
      matmul({.type = row_.weights,
              .weights = weights_.data(),
              .weights_stride = weights_.size() / kOutputs,
              .num_columns = kColumns,
              .first_output = 0,
              .last_output = kOutputs,
              .x = quantized_.data(),
              .x_stride = QuantizedRowBytes(kColumns),
              .num_rows = num_rows,
              .out = out_.data(),
              .out_stride = kOutputs});
    };
    repeat_();
    return out_;
  }

  bool TestMatmul() {
    const WeightLayout layout = LayoutOf(row_.weights);
    std::mt19937 random(1);
    weights_.resize(kOutputs * size_t{kColumns} / static_cast<size_t>(layout.columns) *
                    layout.bytes);
    FillWeights(row_.weights, {}, random, weights_);
    std::normal_distribution<float> normal;
    std::vector<float> x(size_t{kMostRows} * kColumns);
    for (float& value : x) value = normal(random);
    quantized_.resize(QuantizedRowBytes(kMostRows * kColumns));
    for (size_t r = 0; r < kMostRows; ++r) {
      MatmulOf(Isa::kScalar)
          .quantize(&x[r * kColumns], kColumns, &quantized_[r * QuantizedRowBytes(kColumns)]);
    }
    const std::vector<float> plain = Products(MatmulOf(Isa::kScalar).matmul, kMostRows);
    bool same = true;
    for (const int num_rows : {kMostRows, 9, 8, 7, 6, 5, 4, 3, 2, 1}) {  // the last one is timed
      const std::vector<float> found = Products(row_.matmul, num_rows);
      same = same && std::memcmp(found.data(), plain.data(), found.size() * sizeof(float)) == 0;
    }
    return same;
  }

  // Of a product: more columns than kernels take at once, more rows than are few to them.
  static constexpr int kColumns = 1280, kOutputs = kOutputsPerUnit, kMostRows = 13;

  const KernelRow& row_;
  Data data_;
  AlignedBuffer<uint8_t> prepared_;
  std::vector<float> out_, rescale_;
  std::vector<uint16_t> half_;
  std::vector<uint8_t> byte_scales_, weights_, quantized_;
  SoftmaxState softmax_;
  std::function<void()> repeat_;
};

}  // namespace

SelfCheckRow CheckKernelRow(const KernelRow& row, double seconds) {
  return RowTest(row).Run(seconds);
}

std::vector<SelfCheckRow> RunKernelSelfCheck(double seconds) {
  const CpuFeatures cpu = DetectCpuFeatures();
  const std::span<const KernelRow> rows = AllKernelRows();
  std::vector<SelfCheckRow> results;
  for (const KernelRow& row : rows) {
    if (!cpu.Contains(row.requires_features)) {
      results.push_back({.name = row.name, .op = row.op, .skipped = true});
      continue;
    }
    if (row.op == KernelOp::kPrepareQ) continue;  // with its qk
    results.push_back(CheckKernelRow(row, seconds / static_cast<double>(rows.size())));
  }
  return results;
}

}  // namespace turboquant
