// Compiled twice: against the installed ggml, and against the ggml of ik_llama.cpp as a library of
// its own (bench/peers/peers.py --build-ik), which has no thread pools.
#if __has_include(<ggml-cpu.h>)
#include <ggml-cpu.h>
#define TQ_GGML_HAS_THREAD_POOLS 1
#else
#include <ggml.h>
#define TQ_GGML_HAS_THREAD_POOLS 0
#endif

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/check.h"
#include "bench/attention/contender.h"

namespace turboquant::bench {
namespace {

ggml_type TypeOf(const std::string& format) {
  if (format == "f16") return GGML_TYPE_F16;
  if (format == "q8_0") return GGML_TYPE_Q8_0;
  CHECK_EQ(format, std::string("q4_0"));
  return GGML_TYPE_Q4_0;
}

class GgmlAttention final : public Contender {
 public:
  GgmlAttention(const Shape& shape, const std::string& format, int num_threads)
      : shape_(shape), type_(TypeOf(format)), num_threads_(num_threads) {
    engine = TQ_GGML_HAS_THREAD_POOLS ? "ggml" : "ik";
    k = v = format;
    isa = "native";
    integer = type_ != GGML_TYPE_F16;
    copies_ = shape.shared ? 1 : shape.sequences;
    row_bytes_ = ggml_row_size(type_, shape.head_dim);
    side_bytes_ = row_bytes_ * static_cast<size_t>(shape.num_kv_heads * shape.context * copies_);
    num_layers = shape.NumLayers(2 * side_bytes_);
    cache_bytes = 2 * side_bytes_ * static_cast<size_t>(num_layers);
    BuildGraph();
    Plan();
  }
  ~GgmlAttention() override {
#if TQ_GGML_HAS_THREAD_POOLS
    ggml_threadpool_free(pool_);
#endif
    ggml_free(context_);
  }

  double Run(Team&) override {
    const auto start = std::chrono::steady_clock::now();
    CHECK_EQ(ggml_graph_compute(graph_, &plan_), GGML_STATUS_SUCCESS);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  void BuildGraph() {
    const auto layers = static_cast<size_t>(num_layers);
    const auto rows = static_cast<size_t>(shape_.queries * shape_.sequences);
    const size_t q_bytes = rows * static_cast<size_t>(shape_.NumHeads() * shape_.head_dim) * 4;
    const size_t mask_bytes = static_cast<size_t>(shape_.context * MaskRows()) * 2;
    constexpr size_t kBytesPerTensor = 1024;
    const ggml_init_params params = {.mem_size = cache_bytes + q_bytes * (layers + 1) + mask_bytes +
                                                 (8 * layers + 16) * kBytesPerTensor +
                                                 ggml_graph_overhead_custom(8 * layers + 16, false),
                                     .mem_buffer = nullptr,
                                     .no_alloc = false};
    context_ = ggml_init(params);
    CHECK(context_ != nullptr);
    ggml_tensor* q = ggml_new_tensor_4d(context_, GGML_TYPE_F32, shape_.head_dim, shape_.queries,
                                        shape_.NumHeads(), shape_.sequences);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < ggml_nelements(q); ++i) ggml_get_data_f32(q)[i] = normal(random);
    ggml_tensor* mask = MakeMask();
    MakeRows();
    graph_ = ggml_new_graph_custom(context_, 8 * layers + 16, false);
    const float scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    for (int layer = 0; layer < num_layers; ++layer) {
      ggml_tensor* keys = MakeSide();
      ggml_tensor* values = MakeSide();
      ggml_build_forward_expand(graph_,
                                ggml_flash_attn_ext(context_, q, keys, values, mask, scale, 0, 0));
    }
  }

  void Plan() {
#if TQ_GGML_HAS_THREAD_POOLS
    ggml_threadpool_params params = ggml_threadpool_params_default(num_threads_);
    params.poll = 1;  // its threads must not spin while others are measured
    pool_ = ggml_threadpool_new(&params);
    plan_ = ggml_graph_plan(graph_, num_threads_, pool_);
#else
    plan_ = ggml_graph_plan(graph_, num_threads_);
#endif
    work_.resize(plan_.work_size);
    plan_.work_data = work_.data();
  }

  // A multiple of what the older ggml wants.
  int MaskRows() const {
    constexpr int kPadding = 64;
    return (shape_.queries + kPadding - 1) / kPadding * kPadding;
  }

  // 0 where a query may look, -inf behind it.
  ggml_tensor* MakeMask() {
    ggml_tensor* mask = ggml_new_tensor_2d(context_, GGML_TYPE_F16, shape_.context, MaskRows());
    auto* out = static_cast<ggml_fp16_t*>(mask->data);
    for (int query = 0; query < MaskRows(); ++query) {
      const int seen =
          shape_.queries >= kPromptQueries ? shape_.Depth() + query + 1 : shape_.context;
      for (int token = 0; token < shape_.context; ++token) {
        *out++ = ggml_fp32_to_fp16(token < seen ? 0.0f : -INFINITY);
      }
    }
    return mask;
  }

  // Values for MakeSide to copy from.
  void MakeRows() {
    constexpr int64_t kRows = 1024;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(kRows * shape_.head_dim));
    for (float& x : values) x = normal(random);
    source_.resize(row_bytes_ * kRows);
    if (type_ == GGML_TYPE_F16) {
      ggml_fp32_to_fp16_row(values.data(), reinterpret_cast<ggml_fp16_t*>(source_.data()),
                            static_cast<int64_t>(values.size()));
    } else {
      ggml_quantize_chunk(type_, values.data(), source_.data(), 0, kRows, shape_.head_dim, nullptr);
    }
  }

  // As llama.cpp keeps it: the heads of a token side by side.
  ggml_tensor* MakeSide() {
    ggml_tensor* tokens = ggml_new_tensor_3d(
        context_, type_, int64_t{shape_.head_dim} * shape_.num_kv_heads, shape_.context, copies_);
    CHECK_EQ(ggml_nbytes(tokens), side_bytes_);
    auto* bytes = static_cast<uint8_t*>(tokens->data);
    for (size_t at = 0; at < side_bytes_; at += source_.size()) {
      std::memcpy(bytes + at, source_.data(), std::min(source_.size(), side_bytes_ - at));
    }
    return ggml_view_4d(context_, tokens, shape_.head_dim, shape_.context, shape_.num_kv_heads,
                        copies_, tokens->nb[1], row_bytes_, tokens->nb[2], 0);
  }

  const Shape shape_;
  const ggml_type type_;
  const int num_threads_;
  int copies_;
  size_t row_bytes_, side_bytes_;
  std::vector<uint8_t> source_, work_;
#if TQ_GGML_HAS_THREAD_POOLS
  ggml_threadpool* pool_ = nullptr;
#endif
  ggml_context* context_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  ggml_cplan plan_{};
};

}  // namespace

#if TQ_GGML_HAS_THREAD_POOLS
std::unique_ptr<Contender> MakeGgml(const Shape& shape, const std::string& format,
                                    int num_threads) {
  return std::make_unique<GgmlAttention>(shape, format, num_threads);
}
#else
extern "C" Contender* MakeIkContender(const Shape& shape, const char* format, int num_threads) {
  return new GgmlAttention(shape, format, num_threads);
}
#endif

}  // namespace turboquant::bench
