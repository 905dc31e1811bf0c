// Timing, in CPU time of this thread, so that a busy machine disturbs less. Every figure is the
// best of several repetitions; "cached" walks over tiles that stay in L2, "stream" over more memory
// than any cache holds, with the same place of the next block prefetched.
#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/aligned_buffer.h"
#include "check.h"
#include "kernels/sample_weights.h"

namespace turboquant::check {
namespace {

constexpr int kTokens = 64;
constexpr size_t kCachedBytes = size_t{192} << 10;
constexpr size_t kStreamingBytes = size_t{96} << 20;
constexpr std::array kHeadDims = {64, 128};
constexpr std::array kRows = {1, 3, 4, 8, 32};
constexpr int kWeightColumns = 2048;

double NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Best time of one call, over walks of `num_tiles` calls each.
double TimeTiles(int num_tiles, const std::function<void(int)>& call) {
  double best = 1e30;
  double total = 0;
  for (int repetition = 0; repetition < 200 && (repetition < 4 || total < 6e7); ++repetition) {
    const double start = NowNs();
    for (int i = 0; i < num_tiles; ++i) call(i);
    const double elapsed = NowNs() - start;
    total += elapsed;
    if (repetition > 0) best = std::min(best, elapsed / num_tiles);  // the first touches memory
  }
  return best;
}

// Blocks of one KV head, [K scales ...][K lines][V lines] as in the cache, filled with valid codes.
class Blocks {
 public:
  Blocks(KvCacheDtype dtype, int head_dim)
      : spec_{.k = Side(dtype),
              .v = Side(dtype),
              .num_kv_heads = 1,
              .head_dim = head_dim,
              .block_size = kTokens},
        layout_(spec_),
        memory_(kStreamingBytes) {
    Rng rng(1);
    FillCodes(dtype, {KvSide::kKey, kTokens, head_dim}, DataKind::kGaussian, rng,
              memory_.data() + layout_.k_lines);
    FillCodes(dtype, {KvSide::kValue, kTokens, head_dim}, DataKind::kGaussian, rng,
              memory_.data() + layout_.v_lines);
    for (size_t i = 0; i < layout_.k_lines / 2; ++i)
      reinterpret_cast<uint16_t*>(memory_.data())[i] = 0x2400;  // 2^-6
    for (int b = 1; b < count(true); ++b)
      std::memcpy(memory_.data() + bytes() * static_cast<size_t>(b), memory_.data(), bytes());
  }

  size_t bytes() const { return layout_.bytes_per_head; }
  int count(bool streaming) const {
    return static_cast<int>((streaming ? kStreamingBytes : kCachedBytes) / bytes());
  }
  const uint8_t* at(int block, bool streaming) const {
    return memory_.data() + bytes() * static_cast<size_t>(block % count(streaming));
  }
  const KvBlockLayout& layout() const { return layout_; }
  const uint16_t* Scales(const uint8_t* block, size_t offset, bool zero_points) const {
    const bool present = zero_points ? spec_.k.HasZeroPoint() : IsPerToken(spec_.k.granularity);
    return present ? reinterpret_cast<const uint16_t*>(block + offset) : nullptr;
  }

 private:
  static KvSideSpec Side(KvCacheDtype dtype) {
    const bool dynamic = IsInteger(dtype);
    return {.dtype = dtype,
            .granularity = dynamic ? ScaleGranularity::kPerTokenHead : ScaleGranularity::kNone};
  }
  KvCacheSpec spec_;
  KvBlockLayout layout_;
  AlignedBuffer<uint8_t> memory_;
};

// Prepared queries, scores and outputs for QK, softmax and PV over blocks.
class Tile {
 public:
  Tile(const Blocks& blocks, int head_dim, int num_rows)
      : blocks_(blocks),
        head_dim_(head_dim),
        num_rows_(num_rows),
        prepared_(static_cast<size_t>(num_rows) * PreparedQBytes(head_dim, head_dim)),
        q_(static_cast<size_t>(num_rows * head_dim)),
        scores_(static_cast<size_t>(num_rows * kMaxTileTokens)),
        out_(static_cast<size_t>(num_rows * head_dim)),
        max_(static_cast<size_t>(num_rows), -INFINITY),
        sum_(static_cast<size_t>(num_rows)),
        rescale_(static_cast<size_t>(num_rows), 1.0f),
        begin_(static_cast<size_t>(num_rows), 0),
        end_(static_cast<size_t>(num_rows), kTokens) {
    Rng rng(2);
    for (float& value : q_) value = static_cast<float>(rng.Gaussian());
    for (float& value : scores_) value = static_cast<float>(rng.Uniform());
  }

  void Prepare(PrepareQFn prepare) {
    prepare({.q = q_.data(),
             .q_stride = static_cast<size_t>(head_dim_),
             .num_rows = num_rows_,
             .head_dim = head_dim_,
             .group_size = head_dim_,
             .scale = 0.125f,
             .channel_scales = nullptr,
             .out = prepared_.data()});
  }
  void Qk(QkFn qk, int block, bool streaming) {
    const uint8_t* base = blocks_.at(block, streaming);
    const KvBlockLayout& layout = blocks_.layout();
    qk({.q = prepared_.data(),
        .k = base + layout.k_lines,
        .scales = blocks_.Scales(base, layout.k_scales, false),
        .zero_points = blocks_.Scales(base, layout.k_zero_points, true),
        .scale_stride = kTokens,
        .num_rows = num_rows_,
        .num_tokens = kTokens,
        .head_dim = head_dim_,
        .group_size = head_dim_,
        .scores = scores_.data(),
        .prefetch = streaming ? blocks_.at(block + 1, true) + layout.k_lines : nullptr});
  }
  void Softmax(SoftmaxFn softmax) {
    softmax({.scores = scores_.data(),
             .begin = begin_.data(),
             .end = end_.data(),
             .num_rows = num_rows_,
             .num_tokens = kTokens,
             .logit_softcap = 0,
             .max = max_.data(),
             .sum = sum_.data(),
             .rescale = rescale_.data()});
  }
  void Pv(PvFn pv, int block, bool streaming) {
    const uint8_t* base = blocks_.at(block, streaming);
    const KvBlockLayout& layout = blocks_.layout();
    pv({.p = scores_.data(),
        .v = base + layout.v_lines,
        .scales = blocks_.Scales(base, layout.v_scales, false),
        .zero_points = blocks_.Scales(base, layout.v_zero_points, true),
        .scale_stride = kTokens,
        .num_rows = num_rows_,
        .num_tokens = kTokens,
        .head_dim = head_dim_,
        .group_size = head_dim_,
        .rescale = rescale_.data(),
        .out = out_.data(),
        .prefetch = streaming ? blocks_.at(block + 1, true) + layout.v_lines : nullptr});
  }

 private:
  const Blocks& blocks_;
  int head_dim_, num_rows_;
  AlignedBuffer<uint8_t> prepared_;
  std::vector<float> q_, scores_, out_, max_, sum_, rescale_;
  std::vector<int> begin_, end_;
};

void PrintHeader() {
  fmt::print("{:<28} {:>5} {:>5} {:>10} {:>8} {:>8} {:>10} {:>8}\n", "row (64 tokens)", "dim",
             "rows", "cached ns", "GB/s", "GMAC/s", "stream ns", "GB/s");
}

// bytes, macs: per call. Nothing streams where stream_ns is 0.
void PrintLine(std::string_view name, int head_dim, int rows, double bytes, double macs,
               double cached_ns, double stream_ns) {
  fmt::print("{:<28} {:>5} {:>5} {:>10.1f} {:>8.2f} {:>8.1f}", name, head_dim, rows, cached_ns,
             bytes / cached_ns, macs / cached_ns);
  if (stream_ns > 0) fmt::print(" {:>10.1f} {:>8.2f}", stream_ns, bytes / stream_ns);
  fmt::print("\n");
  std::fflush(stdout);
}

void BenchProduct(const KernelRow& row, const Blocks& blocks, int head_dim, int num_rows) {
  Tile tile(blocks, head_dim, num_rows);
  const bool qk = row.op == KernelOp::kQk;
  if (qk) tile.Prepare(PartnerRow(row).prepare_q);
  const auto time = [&](bool streaming) {
    return TimeTiles(blocks.count(streaming), [&](int i) {
      qk ? tile.Qk(row.qk, i, streaming) : tile.Pv(row.pv, i, streaming);
    });
  };
  const double macs = static_cast<double>(num_rows) * kTokens * head_dim;
  const double bytes = static_cast<double>(kTokens * head_dim) * CodeBits(row.dtype) / 8;
  PrintLine(row.name, head_dim, num_rows, bytes, macs, time(false), time(true));
}

void BenchPrepareQ(const KernelRow& row, const Blocks& blocks, int head_dim, int num_rows) {
  Tile tile(blocks, head_dim, num_rows);
  const double ns = TimeTiles(1000, [&](int) { tile.Prepare(row.prepare_q); });
  PrintLine(row.name, head_dim, num_rows, 4.0 * head_dim * num_rows, 0, ns, 0);
}

void BenchEncode(const KernelRow& row, const Blocks& blocks, int head_dim) {
  std::vector<float> x(static_cast<size_t>(kTokens * head_dim));
  Rng rng(3);
  for (float& value : x) value = static_cast<float>(rng.Gaussian());
  AlignedBuffer<uint8_t> lines(x.size() * 4);
  std::vector<uint16_t> scales(kTokens), zero_points(kTokens);
  const bool dynamic = blocks.Scales(lines.data(), 0, false) != nullptr;
  for (KvSide side : {KvSide::kKey, KvSide::kValue}) {
    const EncodeArgs args = {.shape = {side, kTokens, head_dim},
                             .spec = {.dtype = row.dtype,
                                      .granularity = dynamic ? ScaleGranularity::kPerTokenHead
                                                             : ScaleGranularity::kNone},
                             .x = x.data(),
                             .static_scales = {},
                             .lines = lines.data(),
                             .scales = scales.data(),
                             .zero_points = zero_points.data(),
                             .end_codes = nullptr};
    const double ns = TimeTiles(200, [&](int) { row.encode(args); });
    PrintLine(fmt::format("{} {}", row.name, side == KvSide::kKey ? "K" : "V"), head_dim, kTokens,
              static_cast<double>(x.size() * sizeof(float)), 0, ns, 0);
  }
}

void BenchSoftmax(const KernelRow& row) {
  const Blocks blocks(KvCacheDtype::kInt4Sym, 64);
  for (int num_rows : kRows) {
    Tile tile(blocks, 64, num_rows);
    const double ns = TimeTiles(1000, [&](int) { tile.Softmax(row.softmax); });
    PrintLine(row.name, 0, num_rows, 4.0 * kTokens * num_rows, 0, ns, 0);
  }
}

void BenchToHalf(const KernelRow& row) {
  std::vector<float> in(8192, 0.7f);
  std::vector<uint16_t> out(in.size());
  const double ns = TimeTiles(
      200, [&](int) { row.to_half({.in = in.data(), .out = out.data(), .n = in.size()}); });
  PrintLine(row.name, 0, 1, static_cast<double>(in.size() * sizeof(float)), 0, ns, 0);
}

void BenchRotate(const KernelRow& row) {
  for (int head_dim : kHeadDims) {
    const auto stride = static_cast<size_t>(head_dim);
    std::vector<float> rows(kTokens * stride, 0.7f);
    const RotateArgs args = {.in = rows.data(),
                             .in_stride = stride,
                             .out = rows.data(),
                             .out_stride = stride,
                             .num_rows = kTokens,
                             .head_dim = head_dim,
                             .inverse = false};
    const double ns = TimeTiles(200, [&](int) { row.rotate(args); });
    PrintLine(row.name, head_dim, kTokens, static_cast<double>(rows.size() * sizeof(float)), 0, ns,
              0);
  }
}

void BenchFitScales(const KernelRow& row) {
  for (const KvCacheDtype dtype : {KvCacheDtype::kInt8, KvCacheDtype::kInt6, KvCacheDtype::kInt4}) {
    for (int head_dim : kHeadDims) {
      std::vector<float> rows(kTokens * static_cast<size_t>(head_dim));
      Rng rng(1);
      for (float& x : rows) x = static_cast<float>(rng.Gaussian());
      uint8_t codes[kTokens];
      uint16_t scales[kTokens];
      int16_t bias;
      const double ns = TimeTiles(20, [&](int) {
        row.fit_scales({dtype, rows.data(), kTokens, head_dim, codes, &bias, scales});
      });
      PrintLine(fmt::format("{} {}", row.name, turboquant::Name(dtype)), head_dim, kTokens,
                static_cast<double>(rows.size() * sizeof(float)), 0, ns, 0);
    }
  }
}

void BenchExpandScales(const KernelRow& row) {
  const std::vector<uint8_t> codes(kTokens, 200);
  uint16_t scales[kTokens];
  const double ns = TimeTiles(
      200, [&](int) { row.expand_scales({codes.data(), int16_t{-3000}, kTokens, scales}); });
  PrintLine(row.name, 0, 1, static_cast<double>(kTokens), 0, ns, 0);
}

void BenchMeanDot(const KernelRow& row) {
  for (int head_dim : kHeadDims) {
    const auto stride = static_cast<size_t>(head_dim);
    const std::vector<float> q(kMaxTileRows * stride, 0.7f);
    const std::vector<uint8_t> codes(stride, 3);
    float out[kMaxTileRows];
    for (int num_rows : kRows) {
      const double ns = TimeTiles(200, [&](int) {
        row.mean_dot({q.data(), stride, num_rows, head_dim, 8, codes.data(), 1.0f, out});
      });
      PrintLine(row.name, head_dim, num_rows, static_cast<double>(head_dim), 0, ns, 0);
    }
  }
}

void BenchQuantizeRow(const KernelRow& row) {
  const std::vector<float> x(kWeightColumns, 0.7f);
  std::vector<uint8_t> out(QuantizedRowBytes(kWeightColumns));
  const double ns =
      TimeTiles(200, [&](int) { row.quantize_row(x.data(), kWeightColumns, out.data()); });
  PrintLine(row.name, kWeightColumns, 1, static_cast<double>(x.size() * sizeof(float)), 0, ns, 0);
}

// A tile: the weights of kOutputsPerUnit outputs. Many rows are not bound by memory.
void BenchMatmul(const KernelRow& row) {
  const WeightLayout layout = LayoutOf(row.weights);
  const size_t stride = size_t{kWeightColumns} / static_cast<size_t>(layout.columns) * layout.bytes;
  const size_t tile_bytes = kOutputsPerUnit * stride;
  AlignedBuffer<uint8_t> weights(kStreamingBytes);
  std::mt19937 random(1);
  FillWeights(row.weights, {}, random, {weights.data(), tile_bytes});
  const auto count = [&](bool streaming) {
    return static_cast<int>((streaming ? kStreamingBytes : kCachedBytes) / tile_bytes);
  };
  for (int i = 1; i < count(true); ++i)
    std::memcpy(weights.data() + tile_bytes * static_cast<size_t>(i), weights.data(), tile_bytes);
  for (const int num_rows : {1, 4, 8, 32, 256}) {
    const std::vector<float> values(kWeightColumns, 0.7f);
    const size_t x_stride = QuantizedRowBytes(kWeightColumns);
    std::vector<uint8_t> x(x_stride * static_cast<size_t>(num_rows));
    for (size_t at = 0; at < x.size(); at += x_stride)
      MatmulOf(Isa::kScalar).quantize(values.data(), kWeightColumns, &x[at]);
    std::vector<float> out(static_cast<size_t>(num_rows) * kOutputsPerUnit);
    const auto time = [&](bool streaming) {
      return TimeTiles(count(streaming), [&](int i) {
        row.matmul({.type = row.weights,
                    .weights = weights.data() + tile_bytes * static_cast<size_t>(i),
                    .weights_stride = stride,
                    .num_columns = kWeightColumns,
                    .first_output = 0,
                    .last_output = kOutputsPerUnit,
                    .x = x.data(),
                    .x_stride = x_stride,
                    .num_rows = num_rows,
                    .out = out.data(),
                    .out_stride = kOutputsPerUnit});
      });
    };
    const double macs = static_cast<double>(num_rows) * kOutputsPerUnit * kWeightColumns;
    PrintLine(row.name, kWeightColumns, num_rows, static_cast<double>(tile_bytes), macs,
              time(false), num_rows <= 8 ? time(true) : 0);
  }
}

void BenchRow(const KernelRow& row) {
  if (row.op == KernelOp::kQuantizeRow) return BenchQuantizeRow(row);
  if (row.op == KernelOp::kMatmul) return BenchMatmul(row);
  if (row.op == KernelOp::kFitScales) return BenchFitScales(row);
  if (row.op == KernelOp::kExpandScales) return BenchExpandScales(row);
  if (row.op == KernelOp::kMeanDot) return BenchMeanDot(row);
  if (row.op == KernelOp::kSoftmax) return BenchSoftmax(row);
  if (row.op == KernelOp::kToHalf) return BenchToHalf(row);
  if (row.op == KernelOp::kRotate) return BenchRotate(row);
  for (int head_dim : kHeadDims) {
    const Blocks blocks(row.dtype, head_dim);
    if (row.op == KernelOp::kEncode) {
      BenchEncode(row, blocks, head_dim);
      continue;
    }
    for (int num_rows : kRows) {
      if (row.op == KernelOp::kPrepareQ) {
        BenchPrepareQ(row, blocks, head_dim, num_rows);
      } else {
        BenchProduct(row, blocks, head_dim, num_rows);
      }
    }
  }
}

// QK, softmax and PV of every block in turn, as attention runs them; bytes of whole blocks.
void BenchAttention(const KernelTable& table, KvCacheDtype dtype, const Options& options) {
  const std::string name =
      fmt::format("attention/{}/{}", turboquant::Name(dtype), turboquant::Name(table.isa));
  if (name.find(options.filter) == std::string::npos) return;
  const FormatKernels& kernels = table.of(dtype);
  for (int head_dim : kHeadDims) {
    const Blocks blocks(dtype, head_dim);
    for (int num_rows : kRows) {
      Tile tile(blocks, head_dim, num_rows);
      tile.Prepare(kernels.prepare_q);
      const auto time = [&](bool streaming) {
        return TimeTiles(blocks.count(streaming), [&](int i) {
          tile.Qk(kernels.qk, i, streaming);
          tile.Softmax(table.softmax);
          tile.Pv(kernels.pv, i, streaming);
        });
      };
      const double macs = 2.0 * num_rows * kTokens * head_dim;
      PrintLine(name, head_dim, num_rows, static_cast<double>(blocks.bytes()), macs, time(false),
                time(true));
    }
  }
}

// One addition takes one cycle.
double AdditionsPerNs() {
  constexpr int kAdditions = 1'000'000;
  const double ns = TimeTiles(1, [](int) {
    uint64_t x = 0;
    for (int i = 0; i < kAdditions; ++i) {
      x += 1;
      __asm__ volatile("" : "+r"(x));
    }
  });
  return kAdditions / ns;
}

// What the memory gives one core: the sum of all words, no arithmetic to speak of.
void BenchRead() {
  const AlignedBuffer<uint64_t> memory(kStreamingBytes / 8);
  volatile uint64_t sink = 0;
  const double ns = TimeTiles(1, [&](int) {
    uint64_t sums[8] = {};
    for (size_t i = 0; i < memory.size(); i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += memory.data()[i + j];
    }
    for (uint64_t sum : sums) sink = sink + sum;
  });
  fmt::print(
      "plain read of {} MiB: {:.2f} GB/s; dependent additions: {:.2f} per ns (the clock, in GHz)\n",
      kStreamingBytes >> 20, kStreamingBytes / ns, AdditionsPerNs());
}

}  // namespace

void RunBench(const Options& options) {
  const CpuFeatures cpu = DetectCpuFeatures();
  BenchRead();
  PrintHeader();
  for (const KernelRow& row : AllKernelRows()) {
    const bool chosen = (options.isa.empty() || options.isa == turboquant::Name(row.isa)) &&
                        row.name.find(options.filter) != std::string_view::npos;
    if (chosen && cpu.Contains(row.requires_features)) BenchRow(row);
  }
  for (Isa isa : kAllIsas) {
    if (!CanRun(isa, cpu) || (!options.isa.empty() && options.isa != turboquant::Name(isa)))
      continue;
    const KernelTable table = MakeKernelTable(isa, cpu);
    for (KvCacheDtype dtype : kAllKvCacheDtypes) BenchAttention(table, dtype, options);
  }
  BenchRead();
}

}  // namespace turboquant::check
