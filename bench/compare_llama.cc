// Prefill and decode at depth, of one sequence or a batch of them: our engine beside libllama, in
// one process, on one file, turn by turn, so that a change of the machine's load meets all alike.
//   compare_llama -m model.gguf -t 2 --depths 0,4096,8192 --ours int8,f16 --llama f16,q8_0 --csv
//   out.csv
// Every sequence of a batch has a context of its own; tokens per second are those of all together.
// Sampling is outside the clock on both sides; libllama runs with flash attention and a thread pool
// that lives as long as ours. With --copies its cache is filled with copies of its first 512
// tokens, moved to their positions: computing many is slow (5 tokens per second at 30,000, q8_0).
// Every figure is tokens per second: median of the turns, slowest and fastest.
#include <ggml-cpu.h>
#include <llama.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "codec/kv_cache_spec.h"
#include "engine/model_runner.h"
#include "model/model.h"

namespace turboquant {
namespace {

struct Settings {
  std::string model;
  int num_threads = 2;
  std::vector<int> depths = {0, 4096, 8192};
  std::vector<std::string> ours = {"int8", "f16"};
  std::vector<std::string> llama = {"f16", "q8_0"};
  int prefill_tokens = 512;
  int decode_tokens = 8;  // per turn
  int batch = 1;          // sequences that decode together
  int turns = 9;
  bool cpu_time = false;
  bool copies = false;  // of libllama's first tokens, rather than more that it computes
  std::string csv;
};

constexpr int kBatchTokens = 512;
constexpr int32_t kFirstToken = 1000;  // any text does: no step depends on what the tokens are
int32_t TokenAt(int position) { return kFirstToken + position % 1000; }

// Seconds since some start: the wall's, or the CPU's over all threads of the process, divided by
// their number.
double Now(const Settings& settings) {
  if (!settings.cpu_time) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)) /
         settings.num_threads;
}

// One engine with one cache format. The sequences that Grow extends are what a turn starts from.
class Contender {
 public:
  explicit Contender(std::string name) : name_(std::move(name)) {}
  virtual ~Contender() = default;
  virtual void Grow(int depth) = 0;    // brings the sequences to `depth` tokens
  virtual void Decode(int count) = 0;  // `count` steps of all of them, forgotten afterwards
  virtual void Prefill(
      int count) = 0;  // `count` more tokens of the first one, forgotten afterwards
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class Ours final : public Contender {
 public:
  Ours(std::shared_ptr<const Model> model, const std::string& format, const Settings& settings,
       int max_context)
      : Contender("turboquant " + format) {
    const ModelConfig& config = model->config();
    const auto sides = ParseKvFormat(format, "", "", nullptr);
    CHECK(sides.has_value());
    KvCacheSpec spec;
    spec.k = sides->k;
    spec.v = sides->v;
    spec.num_kv_heads = config.num_kv_heads;
    spec.head_dim = config.head_dim;
    ModelRunnerOptions options;
    options.cache.layers.assign(static_cast<size_t>(config.num_layers), spec);
    options.cache.num_blocks = (settings.batch + 1) * (max_context / spec.block_size + 2);
    options.cache.max_num_seqs = 2 * settings.batch;
    options.num_threads = settings.num_threads;
    options.max_batch_tokens = kBatchTokens;
    options.max_context = max_context;
    auto runner = ModelRunner::Create(std::move(model), std::move(options));
    CHECK(runner.has_value());
    runner_ = *std::move(runner);
    for (int i = 0; i < settings.batch; ++i) {
      bases_.push_back(runner_->cache().AddSequence().value());
    }
  }

  void Grow(int depth) override {
    for (const SequenceId base : bases_) Feed(base, depth, StepInput::Logits::kNone);
  }

  void Decode(int count) override {
    std::vector<SequenceId> forks;
    for (const SequenceId base : bases_) forks.push_back(runner_->cache().Fork(base).value());
    std::vector<StepInput> inputs(forks.size());
    for (int i = 0; i < count; ++i) {
      const int32_t token = TokenAt(runner_->cache().NumTokens(forks.front()));
      for (size_t f = 0; f < forks.size(); ++f) {
        CHECK(runner_->cache().AllocateSlots(forks[f], 1));
        inputs[f] = {.sequence = forks[f],
                     .tokens = std::span(&token, 1),
                     .logits = StepInput::Logits::kLast};
      }
      runner_->Execute(inputs);
    }
    for (const SequenceId fork : forks) runner_->cache().Free(fork);
  }

  void Prefill(int count) override {
    const SequenceId fork = runner_->cache().Fork(bases_.front()).value();
    Feed(fork, runner_->cache().NumTokens(fork) + count, StepInput::Logits::kLast);
    runner_->cache().Free(fork);
  }

 private:
  void Feed(SequenceId sequence, int depth, StepInput::Logits logits) {
    for (int at = runner_->cache().NumTokens(sequence); at < depth;
         at += static_cast<int>(tokens_.size())) {
      tokens_.resize(static_cast<size_t>(std::min(kBatchTokens, depth - at)));
      for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = TokenAt(at + static_cast<int>(i));
      CHECK(runner_->cache().AllocateSlots(sequence, static_cast<int>(tokens_.size())));
      const StepInput input{.sequence = sequence, .tokens = tokens_, .logits = logits};
      runner_->Execute({&input, 1});
    }
  }

  std::unique_ptr<ModelRunner> runner_;
  std::vector<SequenceId> bases_;
  std::vector<int32_t> tokens_;
};

ggml_type TypeOf(const std::string& format) {
  if (format == "f16") return GGML_TYPE_F16;
  return format == "q8_0" ? GGML_TYPE_Q8_0 : GGML_TYPE_Q4_0;
}

class Llama final : public Contender {
 public:
  Llama(llama_model* model, ggml_type type, const Settings& settings, int max_context)
      : Contender(std::string("llama.cpp ") + ggml_type_name(type)),
        num_sequences_(settings.batch),
        copies_(settings.copies) {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(max_context * num_sequences_);
    params.n_batch = params.n_ubatch = kBatchTokens;
    params.n_seq_max = static_cast<uint32_t>(num_sequences_ + (copies_ ? 1 : 0));
    params.kv_unified = copies_;  // no: every sequence attends to its own tokens only
    params.n_threads = params.n_threads_batch = settings.num_threads;
    params.type_k = params.type_v = type;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    params.no_perf = true;
    context_ = llama_init_from_model(model, params);
    CHECK(context_ != nullptr);
    ggml_threadpool_params pool_params = ggml_threadpool_params_default(settings.num_threads);
    pool_params.poll = 1;  // as ours: its threads must not spin while the others have their turn
    pool_ = ggml_threadpool_new(&pool_params);
    llama_attach_threadpool(context_, pool_, pool_);
    batch_ = llama_batch_init(kBatchTokens, 0, 1);
  }
  ~Llama() override {
    llama_batch_free(batch_);
    llama_free(context_);
    ggml_threadpool_free(pool_);
  }

  void Grow(int depth) override {
    if (copies_) Copy(depth);
    for (int sequence = 0; sequence < num_sequences_; ++sequence) {
      for (int at = depth_; at < depth; at += batch_.n_tokens) {
        Feed(sequence, at, std::min(kBatchTokens, depth - at), /*logits=*/false);
      }
    }
    depth_ = std::max(depth, depth_);
  }

  void Decode(int count) override {
    for (int i = 0; i < count; ++i) {
      batch_.n_tokens = 0;
      for (int sequence = 0; sequence < num_sequences_; ++sequence) {
        Add(sequence, depth_ + i, /*logits=*/true);
      }
      Compute();
    }
    for (int sequence = 0; sequence < num_sequences_; ++sequence) Forget(sequence);
  }

  void Prefill(int count) override {
    Feed(0, depth_, count, /*logits=*/true);
    Forget(0);
  }

 private:
  void Add(int sequence, int position, bool logits) {
    const int i = batch_.n_tokens++;
    batch_.token[i] = TokenAt(position);
    batch_.pos[i] = position;
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = sequence;
    batch_.logits[i] = logits;
  }
  void Feed(int sequence, int start, int count, bool logits) {
    batch_.n_tokens = 0;
    for (int i = 0; i < count; ++i) Add(sequence, start + i, logits && i == count - 1);
    Compute();
  }
  // Brings sequence 0 to as many whole batches as `depth` has.
  void Copy(int depth) {
    if (depth < kBatchTokens) return;
    if (depth_ == 0) Feed(0, 0, depth_ = kBatchTokens, /*logits=*/false);
    CHECK_EQ(depth_ % kBatchTokens, 0);
    llama_memory_t memory = llama_get_memory(context_);
    if (first_tokens_.empty()) {
      first_tokens_.resize(llama_state_seq_get_size(context_, 0));
      CHECK_EQ(llama_state_seq_get_data(context_, first_tokens_.data(), first_tokens_.size(), 0),
               first_tokens_.size());
    }
    for (; depth - depth_ >= kBatchTokens; depth_ += kBatchTokens) {
      CHECK_EQ(llama_state_seq_set_data(context_, first_tokens_.data(), first_tokens_.size(), 1),
               first_tokens_.size());
      llama_memory_seq_add(memory, 1, 0, -1, depth_);
      llama_memory_seq_cp(memory, 1, 0, -1, -1);
      CHECK(llama_memory_seq_rm(memory, 1, -1, -1));
    }
    CHECK_EQ(llama_memory_seq_pos_max(memory, 0), depth_ - 1);
  }
  void Compute() {
    CHECK_EQ(llama_decode(context_, batch_), 0);
    llama_synchronize(context_);
  }
  void Forget(int sequence) {
    CHECK(llama_memory_seq_rm(llama_get_memory(context_), sequence, depth_, -1));
  }

  const int num_sequences_;
  const bool copies_;
  std::vector<uint8_t> first_tokens_;  // state of sequence 0 at kBatchTokens
  llama_context* context_;
  ggml_threadpool* pool_;
  llama_batch batch_;
  int depth_ = 0;
};

struct Row {
  std::string measure;
  int depth;
  std::string contender;
  double median, slowest, fastest;  // tokens per second
};

class Comparison {
 public:
  explicit Comparison(const Settings& settings) : settings_(settings) {}

  void Run() {
    const int max_context = *std::ranges::max_element(settings_.depths) +
                            std::max(settings_.prefill_tokens, settings_.decode_tokens);
    auto model = Model::Load({.path = settings_.model});
    if (!model) throw CLI::RuntimeError(model.error().message, 1);
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = 0;
    const std::unique_ptr<llama_model, void (*)(llama_model*)> llama(
        llama_model_load_from_file(settings_.model.c_str(), params), llama_model_free);
    CHECK(llama != nullptr);
    std::vector<std::unique_ptr<Contender>> contenders;
    for (const std::string& format : settings_.ours) {
      contenders.push_back(std::make_unique<Ours>(*model, format, settings_, max_context));
    }
    for (const std::string& format : settings_.llama) {
      contenders.push_back(
          std::make_unique<Llama>(llama.get(), TypeOf(format), settings_, max_context));
    }
    for (const int depth : settings_.depths) {
      for (const auto& contender : contenders) {
        contender->Grow(depth);
        if (depth > 0) fmt::print(stderr, "{} has {} tokens\n", contender->name(), depth);
      }
      if (settings_.prefill_tokens > 0) {
        Measure(fmt::format("prefill {}", settings_.prefill_tokens), depth, contenders,
                settings_.prefill_tokens,
                [&](Contender& contender) { contender.Prefill(settings_.prefill_tokens); });
      }
      if (settings_.decode_tokens > 0) {
        Measure("decode", depth, contenders, settings_.decode_tokens * settings_.batch,
                [&](Contender& contender) { contender.Decode(settings_.decode_tokens); });
      }
    }
    WriteCsv();
  }

 private:
  template <typename Turn>
  void Measure(const std::string& measure, int depth,
               const std::vector<std::unique_ptr<Contender>>& contenders, int tokens, Turn turn) {
    std::vector<std::vector<double>> speeds(contenders.size());
    for (int i = -1; i < settings_.turns; ++i) {  // the first one warms up
      for (size_t c = 0; c < contenders.size(); ++c) {
        std::this_thread::sleep_for(
            std::chrono::milliseconds(10));  // the other pools' workers go to sleep
        const double start = Now(settings_);
        turn(*contenders[c]);
        if (i >= 0) speeds[c].push_back(tokens / (Now(settings_) - start));
      }
    }
    for (size_t c = 0; c < contenders.size(); ++c) {
      std::ranges::sort(speeds[c]);
      rows_.push_back({measure, depth, contenders[c]->name(), speeds[c][speeds[c].size() / 2],
                       speeds[c].front(), speeds[c].back()});
      const Row& row = rows_.back();
      fmt::print("{:12} at {:6} x{:<3} {:22} {:9.2f} t/s  [{:.2f} .. {:.2f}]\n", row.measure,
                 row.depth, settings_.batch, row.contender, row.median, row.slowest, row.fastest);
    }
    std::fflush(stdout);
  }

  void WriteCsv() const {
    if (settings_.csv.empty()) return;
    std::string text =
        "measure,depth,batch,contender,threads,clock,turns,median_tokens_per_s,slowest,fastest\n";
    for (const Row& row : rows_) {
      text += fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f}\n", row.measure, row.depth,
                          settings_.batch, row.contender, settings_.num_threads,
                          settings_.cpu_time ? "cpu" : "wall", settings_.turns, row.median,
                          row.slowest, row.fastest);
    }
    const Status status = WriteFileAtomically(settings_.csv, text);
    if (!status) throw CLI::RuntimeError(status.error().message, 1);
  }

  Settings settings_;
  std::vector<Row> rows_;
};

int Main(int argc, char** argv) {
  Settings settings;
  CLI::App app("Our engine beside libllama on the same file");
  app.add_option("-m,--model", settings.model, "GGUF file")->required();
  app.add_option("-t,--threads", settings.num_threads, "Threads")
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("--depths", settings.depths, "Tokens in the cache when decoding, ascending")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--ours", settings.ours, "Our cache formats")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--llama", settings.llama, "libllama's cache formats")
      ->delimiter(',')
      ->check(CLI::IsMember({"f16", "q8_0", "q4_0"}))
      ->capture_default_str();
  app.add_option("--prefill", settings.prefill_tokens, "Tokens of the prompt, 0 = none")
      ->check(CLI::Range(0, kBatchTokens))
      ->capture_default_str();
  app.add_option("--decode", settings.decode_tokens, "Steps per turn, 0 = none")
      ->check(CLI::Range(0, 512))
      ->capture_default_str();
  app.add_option("--batch", settings.batch, "Sequences that decode together, each at the depth")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--turns", settings.turns, "Measured turns of each")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_flag("--cpu-time", settings.cpu_time,
               "CPU time instead of the clock: for a busy machine, with one thread");
  app.add_flag("--copies", settings.copies,
               "Fill libllama's cache with copies of its first 512 tokens, one sequence "
               "(all depths but the last whole 512s)");
  app.add_option("--csv", settings.csv, "Write the table there");
  try {
    app.parse(argc, argv);
    if (settings.copies && settings.batch > 1) {
      throw CLI::ValidationError("--copies", "works with --batch 1 only");
    }
    Comparison(settings).Run();
  } catch (const CLI::Error& error) {
    return app.exit(error);
  }
  return 0;
}

}  // namespace
}  // namespace turboquant

int main(int argc, char** argv) { return turboquant::Main(argc, argv); }
