#include "runs.h"

#include <llama.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/check.h"
#include "codec/kv_cache_spec.h"

namespace turboquant {

namespace {

void InitQuietly() {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
}

}  // namespace

LlamaRun::LlamaRun(const std::string& path, OracleCache cache, int max_context, int num_threads) {
  InitQuietly();
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  model_ = llama_model_load_from_file(path.c_str(), model_params);
  CHECK(model_ != nullptr);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(max_context);
  params.n_batch = params.n_ubatch = 512;
  params.n_seq_max = 1;
  params.n_threads = params.n_threads_batch = num_threads;
  params.type_k = params.type_v = cache == OracleCache::kF32 ? GGML_TYPE_F32 : GGML_TYPE_F16;
  params.flash_attn_type =
      cache == OracleCache::kF32 ? LLAMA_FLASH_ATTN_TYPE_DISABLED : LLAMA_FLASH_ATTN_TYPE_ENABLED;
  context_ = llama_init_from_model(model_, params);
  CHECK(context_ != nullptr);
  vocab_size_ = llama_vocab_n_tokens(llama_model_get_vocab(model_));
}

LlamaRun::~LlamaRun() {
  llama_free(context_);
  llama_model_free(model_);
}

void LlamaRun::Feed(std::span<const int32_t> tokens, std::vector<float>* logits) {
  llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
  batch.n_tokens = static_cast<int32_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = num_tokens_ + static_cast<int>(i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  CHECK_EQ(llama_decode(context_, batch), 0);
  llama_batch_free(batch);
  num_tokens_ += static_cast<int>(tokens.size());
  const float* all = llama_get_logits(context_);
  logits->insert(logits->end(), all, all + tokens.size() * static_cast<size_t>(vocab_size_));
}

void LlamaRun::Reset() {
  llama_memory_clear(llama_get_memory(context_), /*data=*/false);
  num_tokens_ = 0;
}

void WriteF32Copy(const std::string& path, const std::string& out) {
  if (std::filesystem::exists(out)) return;
  InitQuietly();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_ALL_F32;
  params.allow_requantize = true;
  params.nthread = 1;
  const std::string temporary = out + ".tmp";
  CHECK_EQ(llama_model_quantize(path.c_str(), temporary.c_str(), &params), 0u);
  std::filesystem::rename(temporary, out);
}

std::shared_ptr<const Model> LoadModel(const std::string& path, WeightMode weights) {
  auto model = Model::Load({.path = path, .weights = weights});
  if (!model) fmt::print(stderr, "{}\n", model.error().message);
  CHECK(model.has_value());
  return *std::move(model);
}

OurRun::OurRun(const Options& options)
    : model_(options.model), runner_(options.model, options.num_threads) {
  const ModelConfig& config = model_->config();
  const auto sides = ParseKvFormat(options.kv_cache_dtype, "", "", nullptr);
  CHECK(sides.has_value());
  KvCacheSpec spec;
  spec.k = sides->k;
  spec.v = sides->v;
  spec.num_kv_heads = config.num_kv_heads;
  spec.head_dim = config.head_dim;
  KvCacheConfig cache;
  cache.layers.assign(static_cast<size_t>(config.num_layers), spec);
  cache.num_blocks = (options.max_context + spec.block_size - 1) / spec.block_size + 1;
  auto manager = KvCacheManager::Create(std::move(cache));
  CHECK(manager.has_value());
  manager_ = *std::move(manager);
  const auto kernels = SelectKernels("");
  CHECK(kernels.has_value());
  kernels_ = *kernels;
  const AttentionLimits limits{.max_batch_tokens = options.max_batch_tokens,
                               .max_num_seqs = 1,
                               .max_context = options.max_context,
                               .max_threads = options.num_threads};
  attention_ = std::make_unique<PagedAttention>(manager_.get(), &kernels_,
                                                model_->AttentionParams(), limits);
  sequence_ = manager_->AddSequence().value();
}

void OurRun::Step(std::span<const int32_t> tokens, std::span<const int32_t> logits_rows,
                  float* logits) {
  const int start = manager_->NumTokens(sequence_);
  const int count = static_cast<int>(tokens.size());
  CHECK(manager_->AllocateSlots(sequence_, count));
  const SequenceChunk chunk{
      .sequence = sequence_, .start = start, .num_tokens = count, .first_row = 0};
  attention_->BeginStep({&chunk, 1});
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), start);
  runner_.Forward(attention_.get(), tokens, positions, logits_rows, logits);
  manager_->Commit(sequence_);
}

void OurRun::Feed(std::span<const int32_t> tokens, std::vector<float>* logits) {
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  const size_t offset = logits->size();
  logits->resize(offset + tokens.size() * static_cast<size_t>(model_->config().vocab_size));
  Step(tokens, rows, logits->data() + offset);
}

void OurRun::FeedSilently(std::span<const int32_t> tokens) { Step(tokens, {}, nullptr); }

void OurRun::Reset() {
  manager_->Free(sequence_);
  sequence_ = manager_->AddSequence().value();
}

int32_t Argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

namespace {

double LogSumExp(std::span<const float> logits, float max) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x - max));
  return std::log(sum);
}

// Of the distributions softmax(a) and softmax(b), in double.
double KlDivergence(std::span<const float> a, std::span<const float> b) {
  const float max_a = *std::ranges::max_element(a), max_b = *std::ranges::max_element(b);
  const double norm_a = LogSumExp(a, max_a), norm_b = LogSumExp(b, max_b);
  double kl = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double log_a = static_cast<double>(a[i] - max_a) - norm_a;
    kl += std::exp(log_a) * (log_a - (static_cast<double>(b[i] - max_b) - norm_b));
  }
  return kl;
}

}  // namespace

Difference Compare(std::span<const float> reference, std::span<const float> ours, int vocab_size) {
  CHECK_EQ(reference.size(), ours.size());
  Difference difference;
  const auto vocab = static_cast<size_t>(vocab_size);
  difference.num_positions = reference.size() / vocab;
  for (size_t i = 0; i < difference.num_positions; ++i) {
    const auto a = reference.subspan(i * vocab, vocab), b = ours.subspan(i * vocab, vocab);
    for (size_t j = 0; j < vocab; ++j) {
      CHECK(std::isfinite(a[j]) && std::isfinite(b[j]));
      difference.max_abs = std::max(difference.max_abs, std::fabs(a[j] - b[j]));
    }
    difference.mean_kl += KlDivergence(a, b);
    difference.same_top += Argmax(a) == Argmax(b) ? 1 : 0;
  }
  difference.mean_kl /= static_cast<double>(difference.num_positions);
  difference.same_top /= static_cast<double>(difference.num_positions);
  return difference;
}

}  // namespace turboquant
