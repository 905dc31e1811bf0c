// quantize_row and matmul against the plain code, bit for bit. That every row of a product depends
// on itself alone follows: the plain code takes rows one by one. What the plain code means is
// checked against ggml in tests/oracle/matmul_test.cc.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "check.h"
#include "kernels/sample_weights.h"

namespace turboquant::check {
namespace {

constexpr int kMaxColumns = 2304, kMaxOutputs = 64, kMaxRows = 33;
constexpr std::array kBlocks = {1, 2, 3, 5, 9, 18, 32, 33, 65};  // of weights in a row
constexpr std::array kRows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, kMaxRows};
constexpr std::array kOutputRanges = {std::pair{0, 16}, std::pair{16, 48},
                                      std::pair{0, kMaxOutputs}};

struct WeightKind {
  const char* name;
  SampleWeights sample;
};
// 0xFF, 0x7F and 0x80: the largest codes of four and five bits, and both ends of eight.
constexpr std::array kWeightKinds = {WeightKind{"any", {}},
                                     WeightKind{"0xFF", {.byte = 0xFF}},
                                     WeightKind{"0x80", {.byte = 0x80}},
                                     WeightKind{"0x7F", {.byte = 0x7F}},
                                     WeightKind{"0x00", {.byte = 0x00}},
                                     WeightKind{"scales 0", {.largest = 0}},
                                     WeightKind{"subnormal scales", {.largest = 0x1p-15f}},
                                     WeightKind{"largest scales", {.largest = 65504}}};

// Of activations. halves: what rounds to a code lies in the middle between two, a factor of 1.
struct Size {
  double factor;
  bool halves;
};
// Ordinary; at halves; with a scale that is 0 in f16; with one that is infinite there.
constexpr std::array kSizes = {Size{1, false}, Size{1, true}, Size{0x1p-40, false},
                               Size{0x1p40, false}};

struct MatmulCase {
  int num_columns, num_rows;
  int first_output, last_output;
  const WeightKind* weights;
  DataKind x;
  std::string ToString() const {
    return fmt::format("columns {} outputs {} to {} rows {} weights {} values {}", num_columns,
                       first_output, last_output, num_rows, weights->name, check::Name(x));
  }
};

class MatmulBench {
 public:
  explicit MatmulBench(RowCheck& check)
      : check_(check),
        // The widest blocks per column are those of q8_0.
        weights_(size_t{kMaxOutputs} * (kMaxColumns / 32 * LayoutOf(WeightType::kQ8_0).bytes + 16)),
        x_(size_t{kMaxRows} * (QuantizedRowBytes(kMaxColumns) + 32)),
        out_(size_t{kMaxRows} * (kMaxOutputs + 8) * sizeof(float) + 64) {}

  void Run(const MatmulCase& c) {
    Rng rng(check_.case_seed());
    MatmulArgs args = {.type = check_.row().weights,
                       .num_columns = c.num_columns,
                       .first_output = c.first_output,
                       .last_output = c.last_output,
                       .num_rows = c.num_rows};
    MakeWeights(c, rng, &args);
    MakeRows(c, rng, &args);
    args.out_stride = static_cast<size_t>(c.last_output + rng.Below(3) * rng.Below(3));
    const size_t out_count =
        static_cast<size_t>(c.num_rows - 1) * args.out_stride + static_cast<size_t>(c.last_output);
    std::vector<float> expected(out_count);
    float* out =
        out_.PlaceArray<float>(out_count, static_cast<size_t>(rng.Below(2) * rng.Below(8)));
    // What is not to be computed must keep the pattern.
    std::memcpy(expected.data(), out, out_count * sizeof(float));
    args.out = expected.data();
    MatmulOf(Isa::kScalar).matmul(args);
    args.out = out;
    check_.row().matmul(args);
    if (check_.ExpectGuards(out_, "out")) Compare(args, expected);
  }

 private:
  // Up to the last row that is read; those before the first hold the pattern.
  void MakeWeights(const MatmulCase& c, Rng& rng, MatmulArgs* args) {
    const WeightLayout layout = LayoutOf(args->type);
    const size_t row_bytes = static_cast<size_t>(c.num_columns / layout.columns) * layout.bytes;
    args->weights_stride = row_bytes + static_cast<size_t>(rng.Below(2) * rng.Below(16));
    uint8_t* weights =
        weights_.Place(static_cast<size_t>(c.last_output - 1) * args->weights_stride + row_bytes,
                       static_cast<size_t>(rng.Below(2) * rng.Below(32)));
    std::mt19937 random(static_cast<uint32_t>(rng.Next()));
    for (int n = c.first_output; n < c.last_output; ++n) {
      FillWeights(args->type, c.weights->sample, random,
                  {weights + static_cast<size_t>(n) * args->weights_stride, row_bytes});
    }
    args->weights = weights;
  }

  void MakeRows(const MatmulCase& c, Rng& rng, MatmulArgs* args) {
    const size_t row_bytes = QuantizedRowBytes(c.num_columns);
    args->x_stride = row_bytes + 4 * static_cast<size_t>(rng.Below(2) * rng.Below(8));
    uint8_t* x = x_.Place(static_cast<size_t>(c.num_rows - 1) * args->x_stride + row_bytes,
                          4 * static_cast<size_t>(rng.Below(2) * rng.Below(8)));
    std::vector<float> values(static_cast<size_t>(c.num_columns));
    for (int r = 0; r < c.num_rows; ++r) {
      const double size = std::exp2(rng.Uniform() * 12 - 6);
      for (int i = 0; i < c.num_columns; ++i) {
        values[static_cast<size_t>(i)] = static_cast<float>(Draw(c.x, i, rng) * size);
      }
      MatmulOf(Isa::kScalar)
          .quantize(values.data(), c.num_columns, x + static_cast<size_t>(r) * args->x_stride);
    }
    args->x = x;
  }

  void Compare(const MatmulArgs& args, const std::vector<float>& expected) {
    if (std::memcmp(args.out, expected.data(), expected.size() * sizeof(float)) == 0) return;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::memcmp(args.out + i, &expected[i], sizeof(float)) == 0) continue;
      return check_.Fail(fmt::format("row {} output {}: expected {:.9g}, is {:.9g}",
                                     i / args.out_stride, i % args.out_stride, expected[i],
                                     args.out[i]));
    }
  }

  RowCheck& check_;
  GuardedBuffer weights_, x_, out_;
};

}  // namespace

void CheckMatmul(RowCheck& check) {
  MatmulBench bench(check);
  size_t kind = 0;
  for (const int blocks : kBlocks) {
    const int num_columns = blocks * LayoutOf(check.row().weights).columns;
    if (num_columns > kMaxColumns) continue;
    for (const int num_rows : kRows) {
      for (const auto& [first_output, last_output] : kOutputRanges) {
        ++kind;
        const MatmulCase c = {num_columns,
                              num_rows,
                              first_output,
                              last_output,
                              &kWeightKinds[kind % kWeightKinds.size()],
                              kAllDataKinds[kind / kWeightKinds.size() % kAllDataKinds.size()]};
        if (check.Begin(c.ToString())) bench.Run(c);
      }
    }
  }
}

void CheckQuantizeRow(RowCheck& check) {
  GuardedBuffer x_buffer(kMaxColumns * sizeof(float) + 64);
  GuardedBuffer out_buffer(QuantizedRowBytes(kMaxColumns) + 64);
  for (const int blocks : kBlocks) {
    for (const DataKind kind : kAllDataKinds) {
      for (const Size& size : kSizes) {
        const int num_columns = blocks * kActivationBlock;
        if (!check.Begin(fmt::format("columns {} values {} times {:.3g}{}", num_columns, Name(kind),
                                     size.factor, size.halves ? " at halves" : "")))
          continue;
        Rng rng(check.case_seed());
        const auto slack = static_cast<size_t>(rng.Below(2) * rng.Below(16));
        const size_t out_bytes = QuantizedRowBytes(num_columns);
        float* x = x_buffer.PlaceArray<float>(static_cast<size_t>(num_columns), slack);
        for (int i = 0; i < num_columns; ++i) {
          const double value = Draw(kind, i, rng);
          x[i] = static_cast<float>(value * size.factor);
          if (size.halves) x[i] = static_cast<float>(std::rint(value * 254) / 2);
          if (size.halves && i % kActivationBlock == 3) x[i] = 127;
        }
        std::vector<uint8_t> expected(out_bytes);
        MatmulOf(Isa::kScalar).quantize(x, num_columns, expected.data());
        uint8_t* out = out_buffer.Place(out_bytes, 4 * slack);
        check.row().quantize_row(x, num_columns, out);
        if (!check.ExpectGuards(out_buffer, "out")) return;
        check.ExpectBytes(out, expected.data(), out_bytes, "codes, scales and sums");
      }
    }
  }
}

}  // namespace turboquant::check
