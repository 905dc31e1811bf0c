#include "eval/throughput.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include "base/check.h"
#include "engine/model_runner.h"
#include "planner/host.h"

namespace turboquant {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Token ids that look random and are the same in every run.
std::vector<int32_t> MakeTokens(int count, int vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  uint32_t state = 12345;
  for (int32_t& token : tokens) {
    state = state * 1664525u + 1013904223u;
    token = static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(vocab_size));
  }
  return tokens;
}

int64_t Max(const std::vector<int>& values) {
  return *std::max_element(values.begin(), values.end());
}

// One format: a runner, and `batch` sequences that hold `depth` tokens each.
class Bench {
 public:
  static Result<Bench> Create(const std::shared_ptr<const Model>& model,
                              const ThroughputOptions& options, const std::string& dtype) {
    Bench bench;
    bench.options_ = &options;
    bench.dtype_ = dtype;
    const int longest =
        static_cast<int>(Max(options.depths)) + std::max(options.prompt_tokens, options.gen_tokens);
    CachePlanOptions cache = options.cache;
    cache.kv_cache_dtype = dtype;
    cache.max_model_len = longest;
    cache.max_num_seqs =
        2 * static_cast<int>(Max(options.batches));  // the deep ones and their forks
    TQ_ASSIGN_OR_RETURN(const uint64_t usable, UsableMemoryBytes());
    TQ_ASSIGN_OR_RETURN(CachePlan plan,
                        PlanCache(model->config(), cache, {usable, model->weight_bytes()}));
    TQ_ASSIGN_OR_RETURN(bench.runner_,
                        ModelRunner::Create(model, {.cache = std::move(plan.config),
                                                    .num_threads = options.num_threads,
                                                    .max_batch_tokens = options.max_batch_tokens,
                                                    .max_context = longest,
                                                    .isa = options.isa}));
    bench.tokens_ = MakeTokens(longest, model->config().vocab_size);
    return bench;
  }

  const std::string& dtype() const { return dtype_; }
  size_t kv_bytes() {
    return runner_->cache().Stats().block_bytes_used + runner_->cache().Stats().sequence_bytes_used;
  }

  // Brings `batch` sequences to `depth` tokens. False when stopped.
  bool FillTo(int depth, int batch, const std::function<void(int)>& computed) {
    while (static_cast<int>(deep_.size()) < batch) {
      const std::optional<SequenceId> id = runner_->cache().AddSequence();
      CHECK(id.has_value());
      deep_.push_back(*id);
    }
    for (const SequenceId id : std::span(deep_).first(static_cast<size_t>(batch))) {
      while (runner_->cache().NumTokens(id) < depth) {
        if (Stopped()) return false;
        const int from = runner_->cache().NumTokens(id);
        const int count = std::min(options_->max_batch_tokens, depth - from);
        Feed(id, from, count, StepInput::Logits::kNone);
        computed(count);
      }
    }
    return true;
  }

  // Tokens per second of a prompt of prompt_tokens on top of each sequence.
  double Prefill(int batch) {
    const std::vector<SequenceId> forks = ForkAll(batch);
    const double start = Seconds();
    for (const SequenceId id : forks) {
      const int depth = runner_->cache().NumTokens(id);
      for (int done = 0; done < options_->prompt_tokens;) {
        const int count = std::min(options_->max_batch_tokens, options_->prompt_tokens - done);
        const bool last = done + count == options_->prompt_tokens;
        Feed(id, depth + done, count, last ? StepInput::Logits::kLast : StepInput::Logits::kNone);
        done += count;
      }
    }
    const double seconds = Seconds() - start;
    FreeAll(forks);
    return options_->prompt_tokens * batch / seconds;
  }

  struct DecodeResult {
    double tokens_per_second;
    double attention_bytes_per_second;
  };
  // gen_tokens steps of one token for each sequence.
  DecodeResult Decode(int batch) {
    const std::vector<SequenceId> forks = ForkAll(batch);
    const double attention_before = runner_->attention().attend_seconds();
    double bytes_read = 0;
    const double start = Seconds();
    for (int step = 0; step < options_->gen_tokens; ++step) {
      std::vector<StepInput> inputs;
      for (const SequenceId id : forks) {
        CHECK(runner_->cache().AllocateSlots(id, 1));
        const auto at = static_cast<size_t>(runner_->cache().NumTokens(id));
        inputs.push_back({id, std::span(tokens_).subspan(at, 1), StepInput::Logits::kLast});
        bytes_read += static_cast<double>(at / static_cast<size_t>(runner_->cache().block_size())) *
                      static_cast<double>(runner_->cache().BytesPerBlockAllLayers());
      }
      runner_->Execute(inputs);
    }
    const double seconds = Seconds() - start;
    const double attention = runner_->attention().attend_seconds() - attention_before;
    FreeAll(forks);
    return {options_->gen_tokens * batch / seconds, bytes_read / attention};
  }

 private:
  bool Stopped() const { return options_->stop != nullptr && options_->stop->load(); }

  void Feed(SequenceId id, int from, int count, StepInput::Logits logits) {
    CHECK(runner_->cache().AllocateSlots(id, count));
    const StepInput input{
        id, std::span(tokens_).subspan(static_cast<size_t>(from), static_cast<size_t>(count)),
        logits};
    runner_->Execute({&input, 1});
  }

  std::vector<SequenceId> ForkAll(int batch) {
    std::vector<SequenceId> forks;
    for (const SequenceId id : std::span(deep_).first(static_cast<size_t>(batch))) {
      const std::optional<SequenceId> fork = runner_->cache().Fork(id);
      CHECK(fork.has_value());
      forks.push_back(*fork);
    }
    return forks;
  }

  void FreeAll(std::span<const SequenceId> ids) {
    for (const SequenceId id : ids) runner_->cache().Free(id);
  }

  const ThroughputOptions* options_ = nullptr;
  std::string dtype_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<SequenceId> deep_;
  std::vector<int32_t> tokens_;
};

double Middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// All formats at one depth and batch size, repetition by repetition. False when stopped.
bool MeasureCell(std::vector<Bench>* benches, const ThroughputOptions& options, int depth,
                 int batch, const std::function<void(int)>& computed,
                 std::vector<ThroughputRow>* rows) {
  std::vector<ThroughputRow> prefill, decode;
  std::vector<std::vector<double>> bandwidth(benches->size());
  for (Bench& bench : *benches) {
    if (!bench.FillTo(depth, batch, computed)) return false;
    prefill.push_back({fmt::format("pp{}", options.prompt_tokens),
                       depth,
                       batch,
                       bench.dtype(),
                       {},
                       bench.kv_bytes(),
                       0});
    decode.push_back({fmt::format("tg{}", options.gen_tokens),
                      depth,
                      batch,
                      bench.dtype(),
                      {},
                      bench.kv_bytes(),
                      0});
  }
  for (int repetition = 0; repetition < options.repetitions; ++repetition) {
    for (size_t i = 0; i < benches->size(); ++i) {
      if (options.stop != nullptr && options.stop->load()) return false;
      if (options.prompt_tokens > 0) {
        prefill[i].tokens_per_second.push_back((*benches)[i].Prefill(batch));
        computed(options.prompt_tokens * batch);
      }
      if (options.gen_tokens > 0) {
        const Bench::DecodeResult result = (*benches)[i].Decode(batch);
        decode[i].tokens_per_second.push_back(result.tokens_per_second);
        bandwidth[i].push_back(result.attention_bytes_per_second);
        computed(options.gen_tokens * batch);
      }
    }
  }
  for (size_t i = 0; i < benches->size() && options.gen_tokens > 0; ++i) {
    decode[i].attention_gb_per_s = Middle(bandwidth[i]) / 1e9;
  }
  if (options.prompt_tokens > 0) rows->insert(rows->end(), prefill.begin(), prefill.end());
  if (options.gen_tokens > 0) rows->insert(rows->end(), decode.begin(), decode.end());
  return true;
}

}  // namespace

double ThroughputRow::Median() const { return Middle(tokens_per_second); }
double ThroughputRow::Min() const {
  return *std::min_element(tokens_per_second.begin(), tokens_per_second.end());
}
double ThroughputRow::Max() const {
  return *std::max_element(tokens_per_second.begin(), tokens_per_second.end());
}

int64_t TotalTokens(const ThroughputOptions& options) {
  int64_t per_format = Max(options.depths) * Max(options.batches);
  for (const int batch : options.batches) {
    per_format += static_cast<int64_t>(options.depths.size()) * options.repetitions * batch *
                  (options.prompt_tokens + options.gen_tokens);
  }
  return per_format * static_cast<int64_t>(options.kv_cache_dtypes.size());
}

Result<std::vector<ThroughputRow>> MeasureThroughput(std::shared_ptr<const Model> model,
                                                     const ThroughputOptions& options) {
  std::vector<Bench> benches;
  for (const std::string& dtype : options.kv_cache_dtypes) {
    TQ_ASSIGN_OR_RETURN(Bench bench, Bench::Create(model, options, dtype));
    benches.push_back(std::move(bench));
  }
  std::vector<int> depths = options.depths;
  std::sort(depths.begin(), depths.end());
  int64_t done = 0;
  const int64_t total = TotalTokens(options);
  const auto computed = [&](int tokens) {
    done += tokens;
    if (options.progress) options.progress(done, total);
  };
  std::vector<ThroughputRow> rows;
  for (const int depth : depths) {
    for (const int batch : options.batches) {
      if (!MeasureCell(&benches, options, depth, batch, computed, &rows)) {
        return Fail(ErrorCode::kInterrupted, "bench: interrupted after {} of {} tokens", done,
                    total);
      }
    }
  }
  return rows;
}

}  // namespace turboquant
