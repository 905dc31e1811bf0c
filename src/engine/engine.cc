#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "engine/output_text.h"
#include "engine/scheduler.h"
#include "planner/host.h"
#include "planner/report.h"

namespace turboquant {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

struct RequestState {
  RequestState(Request the_request, const Tokenizer& tokenizer)
      : request(std::move(the_request)),
        tokens(std::move(request.prompt)),
        sampler(tokenizer, request.sampling),
        text(request.stop) {
    stats.prompt_tokens = static_cast<int>(tokens.size());
    for (const int32_t token : tokens) sampler.Accept(token);
  }

  Request request;
  std::vector<int32_t> tokens;  // prompt and generated
  Sampler sampler;
  OutputText text;
  RequestStats stats;
  Clock::time_point added = Clock::now(), started, first_token, last_token;
};

Status ValidateRequest(const Request& request, const Model& model, int max_model_len) {
  if (request.prompt.empty()) return Fail(ErrorCode::kInvalidArgument, "the prompt is empty");
  if (request.prompt.size() >= static_cast<size_t>(max_model_len)) {
    return Fail(ErrorCode::kInvalidArgument,
                "the prompt has {} tokens; the context of {} must leave room for at least one more",
                request.prompt.size(), max_model_len);
  }
  if (request.max_tokens < 0) {
    return Fail(ErrorCode::kInvalidArgument, "{} tokens to generate: must be at least 0",
                request.max_tokens);
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return Fail(ErrorCode::kInvalidArgument, "a stop string is empty");
  }
  for (const int32_t token : request.prompt) {
    if (token >= 0 && token < model.config().vocab_size) continue;
    return Fail(ErrorCode::kInvalidArgument, "token {} in the prompt: the model has {}", token,
                model.config().vocab_size);
  }
  return request.sampling.Validate();
}

}  // namespace

struct Engine::Impl {
  Impl(std::shared_ptr<const Model> the_model, EngineOptions the_options, Ledger the_ledger,
       std::unique_ptr<ModelRunner> the_runner)
      : model(std::move(the_model)),
        options(std::move(the_options)),
        ledger(std::move(the_ledger)),
        plan(*ledger.plan),
        runner(std::move(the_runner)),
        scheduler(&runner->cache(), options.max_batch_tokens) {}

  bool Continues(const Request& request) const;
  void ForgetDroppedCaches();
  void Finish(RequestId id, FinishReason reason, RequestOutput output);
  void Compute(const SchedulerOutput& step);
  void Started(const ScheduledChunk& chunk, RequestState* state);
  void TakeToken(RequestId id, std::span<const float> logits);
  std::optional<FinishReason> ReasonToStop(const RequestState& state, int32_t token) const;
  void FillKvStats(RequestId id, RequestStats* stats);

  std::shared_ptr<const Model> model;
  EngineOptions options;
  Ledger ledger;
  const CachePlan& plan;  // the ledger's
  std::unique_ptr<ModelRunner> runner;
  Scheduler scheduler;
  std::map<RequestId, RequestState> requests;
  std::map<RequestId, std::vector<int32_t>>
      kept_tokens;                     // what the caches kept for continuations hold
  std::vector<RequestOutput> outputs;  // for the next return of Step
  int64_t next_id = 0;
  EngineStats totals;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const Model> model,
                                               EngineOptions options) {
  if (options.num_threads == 0) options.num_threads = UsablePhysicalCores();
  if (options.max_batch_tokens < options.cache.max_num_seqs) {
    return Fail(ErrorCode::kInvalidArgument, "{} tokens per step are fewer than {} sequences",
                options.max_batch_tokens, options.cache.max_num_seqs);
  }
  TQ_ASSIGN_OR_RETURN(const uint64_t usable, UsableMemoryBytes());
  TQ_ASSIGN_OR_RETURN(const LedgerSource source,
                      LedgerSource::Of(*model, {.max_batch_tokens = options.max_batch_tokens,
                                                .num_threads = options.num_threads}));
  TQ_ASSIGN_OR_RETURN(Ledger ledger, source.Make({.cache = options.cache, .usable_bytes = usable}));
  if (!ledger.plan) return std::unexpected(*ledger.refusal);
  const CachePlan& plan = *ledger.plan;
  TQ_ASSIGN_OR_RETURN(auto runner,
                      ModelRunner::Create(model, {.cache = plan.config,
                                                  .num_threads = options.num_threads,
                                                  .max_batch_tokens = options.max_batch_tokens,
                                                  .max_context = plan.max_model_len,
                                                  .isa = options.isa}));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(
      std::move(model), std::move(options), std::move(ledger), std::move(runner))));
}

Status Engine::CheckRequest(const Request& request) const {
  return ValidateRequest(request, *impl_->model, impl_->plan.max_model_len);
}

Result<RequestId> Engine::AddRequest(Request request) {
  TQ_RETURN_IF_ERROR(CheckRequest(request));
  const RequestId id{impl_->next_id++};
  if (!impl_->Continues(request)) request.continue_from.reset();
  impl_->scheduler.Add(id, static_cast<int>(request.prompt.size()), request.continue_from);
  impl_->requests.emplace(id, RequestState(std::move(request), impl_->model->tokenizer()));
  return id;
}

// The kept tokens are the first ones of the prompt, not all of them.
static bool Extends(std::span<const int32_t> prompt, const std::vector<int32_t>& kept) {
  return kept.size() < prompt.size() && std::ranges::equal(kept, prompt.first(kept.size()));
}

bool Engine::Impl::Continues(const Request& request) const {
  return request.continue_from && scheduler.IsKept(*request.continue_from) &&
         Extends(request.prompt, kept_tokens.at(*request.continue_from));
}

std::optional<RequestId> Engine::FindContinuation(std::span<const int32_t> prompt) const {
  std::optional<RequestId> best;
  size_t most = 0;
  for (const auto& [id, kept] : impl_->kept_tokens) {
    if (kept.size() <= most || !impl_->scheduler.IsKept(id) || !Extends(prompt, kept)) continue;
    most = kept.size();
    best = id;
  }
  return best;
}

void Engine::Cancel(RequestId id) {
  if (impl_->requests.contains(id)) impl_->Finish(id, FinishReason::kCancelled, {.id = id});
}

void Engine::Release(RequestId id) {
  impl_->scheduler.Release(id);
  impl_->ForgetDroppedCaches();
}

void Engine::Impl::ForgetDroppedCaches() {
  std::erase_if(kept_tokens, [this](const auto& item) { return !scheduler.IsKept(item.first); });
}

std::vector<RequestOutput> Engine::Step() {
  const Clock::time_point begin = Clock::now();
  if (impl_->options.stop != nullptr && impl_->options.stop->load(std::memory_order_relaxed)) {
    while (!impl_->requests.empty()) Cancel(impl_->requests.begin()->first);
  }
  if (impl_->scheduler.HasWork()) {
    const SchedulerOutput step = impl_->scheduler.Schedule();
    impl_->ForgetDroppedCaches();
    if (step.chunks.empty()) {
      const RequestId oldest = *impl_->scheduler.Oldest();
      impl_->Finish(
          oldest, FinishReason::kError,
          {.id = oldest,
           .error = "out of memory: the system refused pages of the KV cache that were planned"});
    } else {
      impl_->Compute(step);
    }
    impl_->totals.step_seconds += Seconds(begin, Clock::now());
  }
  std::ranges::sort(impl_->outputs, {}, &RequestOutput::id);
  return std::exchange(impl_->outputs, {});
}

void Engine::Impl::Compute(const SchedulerOutput& step) {
  for (const RequestId id : step.preempted) ++requests.at(id).stats.preemptions;
  totals.preemptions += static_cast<int64_t>(step.preempted.size());
  std::vector<StepInput> inputs;
  inputs.reserve(step.chunks.size());
  for (const ScheduledChunk& chunk : step.chunks) {
    RequestState& state = requests.at(chunk.request);
    Started(chunk, &state);
    inputs.push_back(
        {.sequence = chunk.sequence,
         .tokens =
             std::span(state.tokens)
                 .subspan(static_cast<size_t>(chunk.start), static_cast<size_t>(chunk.num_tokens)),
         .logits = chunk.reaches_end ? StepInput::Logits::kLast : StepInput::Logits::kNone});
    totals.computed_tokens += chunk.num_tokens;
  }
  std::span<const float> logits = runner->Execute(inputs);
  ++totals.steps;
  const auto vocab_size = static_cast<size_t>(model->config().vocab_size);
  for (const ScheduledChunk& chunk : step.chunks) {
    if (!chunk.reaches_end) continue;
    TakeToken(chunk.request, logits.first(vocab_size));
    logits = logits.subspan(vocab_size);
  }
}

void Engine::Impl::Started(const ScheduledChunk& chunk, RequestState* state) {
  if (state->started != Clock::time_point()) return;
  state->started = Clock::now();
  state->stats.reused_tokens = chunk.start;
}

// Samples the next token of a request from its newest logits.
void Engine::Impl::TakeToken(RequestId id, std::span<const float> logits) {
  RequestState& state = requests.at(id);
  const Result<int32_t> token = state.sampler.Sample(logits);
  if (!token) return Finish(id, FinishReason::kError, {.id = id, .error = token.error().message});
  state.last_token = Clock::now();
  if (state.stats.generated_tokens == 0) state.first_token = state.last_token;
  ++state.stats.generated_tokens;
  ++totals.generated_tokens;
  state.tokens.push_back(*token);
  scheduler.AppendToken(id);
  RequestOutput output = {
      .id = id, .token = *token, .text = state.text.Push(model->tokenizer().TokenToBytes(*token))};
  if (const auto reason = ReasonToStop(state, *token))
    return Finish(id, *reason, std::move(output));
  outputs.push_back(std::move(output));
}

std::optional<FinishReason> Engine::Impl::ReasonToStop(const RequestState& state,
                                                       int32_t token) const {
  const bool end_token =
      model->tokenizer().IsEndOfGeneration(token) && !state.request.ignore_end_of_generation;
  if (end_token || state.text.stopped()) return FinishReason::kStop;
  const bool enough =
      state.request.max_tokens > 0 && state.stats.generated_tokens >= state.request.max_tokens;
  const bool full = state.tokens.size() >= static_cast<size_t>(plan.max_model_len);
  if (enough || full) return FinishReason::kLength;
  return std::nullopt;
}

// Ends a request: `output` becomes its last one.
void Engine::Impl::Finish(RequestId id, FinishReason reason, RequestOutput output) {
  RequestState& state = requests.at(id);
  output.text += state.text.Flush();
  output.finish_reason = reason;
  if (state.stats.generated_tokens > 0) {
    state.stats.ttft_seconds = Seconds(state.added, state.first_token);
    state.stats.prefill_seconds = Seconds(state.started, state.first_token);
    state.stats.decode_seconds = Seconds(state.first_token, state.last_token);
  }
  FillKvStats(id, &state.stats);
  output.stats = state.stats;
  const bool keep = state.request.keep_cache && state.stats.kv_tokens > 0;
  if (keep) {
    state.tokens.resize(static_cast<size_t>(state.stats.kv_tokens));
    kept_tokens.emplace(id, std::move(state.tokens));
  }
  scheduler.Finish(id, keep);
  requests.erase(id);
  outputs.push_back(std::move(output));
}

void Engine::Impl::FillKvStats(RequestId id, RequestStats* stats) {
  stats->bits_per_value = plan.bits_per_value;
  const std::optional<SequenceId> sequence = scheduler.SequenceOf(id);
  if (!sequence) return;
  const KvCacheManager& cache = runner->cache();
  stats->kv_tokens = cache.NumTokens(*sequence);
  const auto tokens = static_cast<size_t>(stats->kv_tokens);
  stats->kv_bytes = tokens / static_cast<size_t>(cache.block_size()) * plan.block_bytes +
                    cache.BytesPerSequence();
  stats->kv_bytes_f16 = tokens * plan.f16_bytes_per_token;
  // f16 has 16 bits per value.
  if (tokens > 0)
    stats->effective_bits =
        16 * static_cast<double>(stats->kv_bytes) / static_cast<double>(stats->kv_bytes_f16);
}

bool Engine::HasWork() const { return impl_->scheduler.HasWork() || !impl_->outputs.empty(); }

const CachePlan& Engine::plan() const { return impl_->plan; }
const Ledger& Engine::ledger() const { return impl_->ledger; }
const Model& Engine::model() const { return *impl_->model; }
ModelRunner& Engine::runner() { return *impl_->runner; }

EngineStats Engine::stats() const {
  EngineStats stats = impl_->totals;
  stats.num_running = impl_->scheduler.num_running();
  stats.num_waiting = impl_->scheduler.num_waiting();
  stats.num_kept = impl_->scheduler.num_kept();
  stats.kept_blocks = impl_->scheduler.num_kept_blocks();
  stats.kv = impl_->runner->cache().Stats();
  return stats;
}

std::vector<std::string> Engine::Describe() const {
  const ModelConfig& model = impl_->model->config();
  const CachePlan& plan = impl_->plan;
  const KernelTable& kernels = impl_->runner->kernels();
  std::set<std::string_view> names;
  for (const KvCacheSpec& spec : plan.config.layers) {
    names.insert(kernels.of(spec.k.dtype).qk_name);
    names.insert(kernels.of(spec.v.dtype).pv_name);
  }
  std::vector<std::string> lines = {
      fmt::format("model {} ({}, {} layers, {} heads and {} KV heads of {}, weights {}: {})",
                  model.name, model.architecture, model.num_layers, model.num_heads,
                  model.num_kv_heads, model.head_dim, FormatBytes(impl_->model->weight_bytes()),
                  model.weight_types),
      fmt::format("kernels {}: {}; threads {}", Name(kernels.isa), fmt::join(names, " "),
                  impl_->options.num_threads),
      fmt::format("KV cache {}: {:.2f} bits per value, {} per token (f16: {}), blocks of {} "
                  "tokens, {} exact first tokens",
                  plan.formats, plan.bits_per_value,
                  FormatBytes(static_cast<uint64_t>(plan.bytes_per_token)),
                  FormatBytes(plan.f16_bytes_per_token), plan.config.layers[0].block_size,
                  plan.config.num_sink_tokens),
      fmt::format("pool of {} blocks, {}, holds {} tokens; up to {} sequences of {} tokens",
                  plan.config.num_blocks, FormatBytes(plan.pool_bytes), plan.PoolTokens(),
                  plan.max_num_seqs, plan.max_model_len)};
  lines.insert(lines.end(), plan.notes.begin(), plan.notes.end());
  const std::vector<std::string> table = LedgerTable(impl_->ledger);
  lines.insert(lines.end(), table.begin(), table.end());
  return lines;
}

// K's own scale of a token must cover its bias: where that is many times the rest, codes without
// the block's mean have few levels left for the rest.
std::vector<std::string> Engine::Warnings() const {
  constexpr float kLargeBias = 10;  // rms over a head; keys themselves have 1 to 3
  const std::vector<float> norms = impl_->model->KeyBiasNorms();
  std::vector<size_t> layers;
  float largest = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    const KvCacheSpec& spec = impl_->plan.config.layers[i];
    if (CodeBits(spec.k.dtype) > 8 || spec.k.HasMean()) continue;
    if (norms[i] < kLargeBias * std::sqrt(static_cast<float>(spec.head_dim))) continue;
    layers.push_back(i);
    largest = std::max(largest, norms[i]);
  }
  if (layers.empty()) return {};
  return {fmt::format(
      "layers {}: the bias of K has a norm of up to {:.0f} per head, which codes of these "
      "layers' keys cannot cope with; int8, int6, int5 and int4 take the block's mean off "
      "by default (--kv-transform centered)",
      fmt::join(layers, ", "), largest)};
}

}  // namespace turboquant
