// Speed of matrix products by weight type: our kernels (kernels/matmul.h), ggml's from the file's
// layout, and from its repacked one: the measurement behind src/model/repack_rule.cc. Random
// weights, 2048 x 2048, one thread; prefill = 512 columns, decode = 1. Medians of CPU time, which
// other processes on the machine disturb less than the clock.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "model/ggml_support.h"
#include "model/matmul_node.h"
#include "model/repack_rule.h"

namespace turboquant {
namespace {

constexpr int64_t kSize = 2048;
constexpr int kCopies =
    16;  // decode walks over several matrices, so that it reads memory rather than cache

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Product {
 public:
  // kernels: none = ggml's
  Product(ggml_type type, ggml_backend_buffer_type_t buffer_type, const MatmulKernels& kernels,
          int64_t columns)
      : context_(NewGgmlContext(4 * kCopies, ggml_graph_overhead())), products_(kernels) {
    std::vector<ggml_tensor*> weights;
    for (int i = 0; i < kCopies; ++i)
      weights.push_back(ggml_new_tensor_2d(context_.get(), type, kSize, kSize));
    const size_t bytes = ggml_nbytes(weights[0]);
    weights_.reset(ggml_backend_buft_alloc_buffer(buffer_type, kCopies * bytes));
    ggml_tallocr allocator = ggml_tallocr_new(weights_.get());
    const std::vector<uint8_t> data = RandomWeights(type, bytes);
    for (ggml_tensor* weight : weights) {
      CHECK_EQ(ggml_tallocr_alloc(&allocator, weight), GGML_STATUS_SUCCESS);
      ggml_backend_tensor_set(weight, data.data(), 0, bytes);
    }
    x_ = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, kSize, columns);
    ggml_set_input(x_);
    graph_ = ggml_new_graph(context_.get());
    for (ggml_tensor* weight : weights)
      ggml_build_forward_expand(graph_, products_.Product(context_.get(), weight, x_));
    allocator_.reset(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    CHECK(ggml_gallocr_alloc_graph(allocator_.get(), graph_));
    ggml_threadpool_params params = ggml_threadpool_params_default(1);
    pool_.reset(ggml_threadpool_new(&params));
    plan_ = ggml_graph_plan(graph_, 1, pool_.get());
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
    std::fill_n(static_cast<float*>(x_->data), kSize * columns, 0.5f);
  }

  double SecondsPerProduct() {
    const double start = CpuSeconds();
    CHECK_EQ(ggml_graph_compute(graph_, &plan_), GGML_STATUS_SUCCESS);
    return (CpuSeconds() - start) / kCopies;
  }

 private:
  static std::vector<uint8_t> RandomWeights(ggml_type type, size_t bytes) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<float> values(kSize * kSize);
    for (float& value : values) value = normal(random);
    std::vector<uint8_t> data(bytes);
    const std::vector<float> importance(kSize, 1.0f);
    ggml_quantize_chunk(type, values.data(), data.data(), 0, kSize, kSize, importance.data());
    return data;
  }

  GgmlContextPtr context_;
  MatmulNodes products_;
  GgmlBufferPtr weights_;
  GgmlAllocatorPtr allocator_;
  GgmlThreadPoolPtr pool_;
  ggml_tensor* x_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_cplan plan_{};
  std::vector<uint8_t> work_;
};

// Seconds of ours, ggml's plain and ggml's repacked product; 0 where there is none. Interleaved, so
// that a change of the machine's load meets all.
std::array<double, 3> Measure(ggml_type type, int64_t columns) {
  const MatmulKernels& kernels = HostMatmul();
  std::array<std::unique_ptr<Product>, 3> products;
  if (CanMultiply(kernels, type, kSize, kSize)) {
    products[0] = std::make_unique<Product>(type, ggml_backend_cpu_buffer_type(), kernels, columns);
  }
  products[1] =
      std::make_unique<Product>(type, ggml_backend_cpu_buffer_type(), MatmulKernels{}, columns);
  if (RepackIsPossible(type, kSize, kSize)) {
    products[2] = std::make_unique<Product>(type, RepackBufferType(), MatmulKernels{}, columns);
  }
  const int repetitions = columns == 1 ? 15 : 3;
  std::array<std::vector<double>, 3> times;
  for (int i = -1; i < repetitions; ++i) {  // the first one warms up
    for (size_t p = 0; p < products.size(); ++p) {
      if (products[p] == nullptr) continue;
      const double seconds = products[p]->SecondsPerProduct();
      if (i >= 0) times[p].push_back(seconds);
    }
  }
  std::array<double, 3> medians{};
  for (size_t p = 0; p < products.size(); ++p) {
    if (times[p].empty()) continue;
    std::ranges::sort(times[p]);
    medians[p] = times[p][times[p].size() / 2];
  }
  return medians;
}

std::string Rate(double amount, double seconds) {
  return seconds > 0 ? fmt::format("{:.1f}", amount / seconds / 1e9) : "-";
}

void Run() {
  InitGgml();
  fmt::print(
      "1 thread; prefill in GFLOP/s, decode in GB/s of weights: ours, ggml, ggml repacked\n");
  fmt::print("{:8} {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8}\n", "type", "prefill", "", "", "decode",
             "", "");
  for (const ggml_type type :
       {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q8_0, GGML_TYPE_Q2_K,
        GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL,
        GGML_TYPE_MXFP4, GGML_TYPE_BF16, GGML_TYPE_F16, GGML_TYPE_F32}) {
    const auto prefill = Measure(type, 512), decode = Measure(type, 1);
    const double flop = 2.0 * kSize * kSize * 512,
                 bytes = static_cast<double>(ggml_row_size(type, kSize)) * kSize;
    fmt::print("{:8} {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8}\n", ggml_type_name(type),
               Rate(flop, prefill[0]), Rate(flop, prefill[1]), Rate(flop, prefill[2]),
               Rate(bytes, decode[0]), Rate(bytes, decode[1]), Rate(bytes, decode[2]));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace turboquant

int main() { turboquant::Run(); }
