#include "planner/ledger.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/mapped_file.h"
#include "model/hyperparameters.h"
#include "model/step_limits.h"
#include "planner/bytes.h"

namespace turboquant {
namespace {

constexpr int kDefaultBlockSize = 64;  // of our engine

// Staging and scratch of attention. They depend on specs, sequences and context, not on the number
// of blocks: one is enough.
Result<uint64_t> AttentionBytesAt(int context, const ModelConfig& model, const CachePlan& plan,
                                  const LedgerSource::Settings& settings) {
  TQ_ASSIGN_OR_RETURN(const KernelTable kernels, SelectKernels(""));
  KvCacheConfig config = plan.config;
  config.num_blocks = 1;
  TQ_ASSIGN_OR_RETURN(const auto manager, KvCacheManager::Create(std::move(config)));
  const PagedAttention attention(manager.get(), &kernels, AttentionParamsOf(model),
                                 {.max_batch_tokens = settings.max_batch_tokens,
                                  .max_num_seqs = plan.max_num_seqs,
                                  .max_context = context,
                                  .max_threads = settings.num_threads});
  return attention.shared_bytes() +
         attention.scratch_bytes_per_thread() * static_cast<uint64_t>(settings.num_threads);
}

// A straight line in the context: beyond what is worth allocating to look at it, it is drawn on.
Result<uint64_t> AttentionBytes(const ModelConfig& model, const CachePlan& plan,
                                const LedgerSource::Settings& settings) {
  constexpr int kMeasuredContext = 1 << 18;
  if (plan.max_model_len <= kMeasuredContext) {
    return AttentionBytesAt(plan.max_model_len, model, plan, settings);
  }
  TQ_ASSIGN_OR_RETURN(const uint64_t half,
                      AttentionBytesAt(kMeasuredContext / 2, model, plan, settings));
  TQ_ASSIGN_OR_RETURN(const uint64_t full,
                      AttentionBytesAt(kMeasuredContext, model, plan, settings));
  const auto halves =
      static_cast<uint64_t>(plan.max_model_len - kMeasuredContext) / (kMeasuredContext / 2) + 1;
  return SumOf({full, ProductOf({halves, full - half})});
}

// For a config.json there is no graph to measure: a bound on graphs and staging, compared with what
// is held in docs/design/engine.md.
uint64_t ModelledStepBytes(const ModelShape& model, int max_batch_tokens) {
  const uint64_t row_floats = 8 * static_cast<uint64_t>(model.hidden_size) +
                              4 * static_cast<uint64_t>(model.intermediate_size);
  return ProductOf({4, static_cast<uint64_t>(max_batch_tokens), row_floats});
}

void AddLine(std::string name, uint64_t bytes, Origin origin, std::string note, Ledger* ledger) {
  ledger->lines.push_back({std::move(name), bytes, origin, std::move(note)});
  ledger->total_bytes = SumOf({ledger->total_bytes, bytes});
}

void AddCacheLines(Ledger* ledger) {
  const CacheBytes& cache = ledger->cache;
  const bool ours = ledger->options.engine == EngineKind::kTurboquant;
  AddLine("KV payload", cache.payload, Origin::kExact, ledger->profile->formats(), ledger);
  AddLine("KV scales", cache.scales, Origin::kExact, "with zero points and block means", ledger);
  AddLine("KV padding", cache.padding, Origin::kExact, "alignment and ends of blocks", ledger);
  if (ours) {
    const bool recent = ledger->options.cache.num_recent_tokens > 0;
    AddLine("KV tails and sinks", cache.sequences, Origin::kExact,
            fmt::format("newest block and first tokens of each sequence, exact{}",
                        recent ? "; recent blocks in int8" : ""),
            ledger);
  }
  if (cache.state > 0)
    AddLine("recurrent state", cache.state, Origin::kExact, "f32, per sequence", ledger);
  if (ledger->pool_bytes > cache.total()) {
    AddLine("KV pool beyond that", ledger->pool_bytes - cache.total(), Origin::kExact,
            "--kv-cache-memory asks for more than the sequences need", ledger);
  }
  if (!ours) return;
  AddLine("prefix cache", 0, Origin::kExact, "shares blocks of the pool", ledger);
  AddLine("swap", 0, Origin::kExact, "none: preempted sequences are computed again", ledger);
}

void AddRunLines(Ledger* ledger) {
  if (ledger->options.engine != EngineKind::kTurboquant) {
    ledger->notes.push_back(fmt::format(
        "activations, graphs and runtime of {} are not counted: they depend on its build; where "
        "its log names the memory left for the cache, give that as --kv-cache-memory",
        Name(ledger->options.engine)));
    return;
  }
  const RunBuffers& buffers = ledger->buffers;
  AddLine("graphs and scratch", buffers.graphs, buffers.origin, "activations of a step", ledger);
  AddLine("attention staging", buffers.attention, buffers.origin, "", ledger);
  AddLine("logits", buffers.logits, buffers.origin, "a row per sequence", ledger);
  AddLine("runtime", ledger->runtime_bytes, Origin::kModelled,
          "program, libraries, tokenizer, block lists", ledger);
}

uint64_t Share(uint64_t bytes, double share) {
  return static_cast<uint64_t>(std::floor(share * static_cast<double>(bytes)));
}

// Limits of engines that are not ours: what is left beside the weights, or what is asked for.
void SetOtherLimits(uint64_t weights, Ledger* ledger) {
  const LedgerOptions& options = ledger->options;
  ledger->limit_bytes = Share(options.usable_bytes, options.cache.memory_utilization);
  ledger->cache_limit_bytes = ledger->limit_bytes - std::min(ledger->limit_bytes, weights);
  if (options.cache.kv_cache_memory) {
    ledger->cache_limit_bytes = *options.cache.kv_cache_memory;
    ledger->limit_bytes = SumOf({weights, ledger->cache_limit_bytes});
  }
}

// The cache that our engine would build, and what it may take.
Status PlanOurs(const CacheModel& model, uint64_t reserved, Ledger* ledger) {
  const CachePlanOptions& cache = ledger->options.cache;
  const MemoryBudget memory = {.usable_bytes = ledger->options.usable_bytes,
                               .reserved_bytes = reserved};
  ledger->limit_bytes = cache.kv_cache_memory
                            ? memory.usable_bytes
                            : Share(memory.usable_bytes, cache.memory_utilization);
  if (const auto budget = CacheBudget(cache, memory)) ledger->cache_limit_bytes = *budget;
  auto plan = PlanCache(model, cache, memory);
  if (!plan) {
    if (plan.error().code != ErrorCode::kOutOfMemory) return std::unexpected(plan.error());
    ledger->refusal = plan.error();
    return {};
  }
  ledger->max_model_len = plan->max_model_len;
  ledger->pool_bytes = plan->pool_bytes + plan->sequence_bytes;
  ledger->notes.insert(ledger->notes.end(), plan->notes.begin(), plan->notes.end());
  ledger->plan = std::move(*plan);
  return {};
}

Status CheckLedgerOptions(const LedgerOptions& options, const ModelShape& model) {
  const CachePlanOptions& cache = options.cache;
  if (cache.max_num_seqs < 1) {
    return Fail(ErrorCode::kInvalidArgument, "--max-num-seqs {}: must be at least 1",
                cache.max_num_seqs);
  }
  if (cache.max_model_len < 0 || (cache.max_model_len == 0 && model.max_context == 0)) {
    return Fail(ErrorCode::kInvalidArgument, "--max-model-len {}: {}", cache.max_model_len,
                cache.max_model_len < 0 ? "must be at least 1"
                                        : "the model names no context length: give one");
  }
  return {};
}

}  // namespace

uint64_t RuntimeBytes(const ModelShape& model, int64_t num_blocks) {
  constexpr uint64_t kProgram = uint64_t{22} << 20;  // libraries and the server's code included
  constexpr uint64_t kPerVocabularyEntry = 300;
  constexpr uint64_t kPerBlock = 40;
  return kProgram + kPerVocabularyEntry * static_cast<uint64_t>(model.vocab_size) +
         ProductOf({kPerBlock, static_cast<uint64_t>(std::min<int64_t>(num_blocks, kMaxBlocks))});
}

Result<LedgerSource> LedgerSource::Open(const std::string& path, const Settings& settings) {
  TQ_RETURN_IF_ERROR(CheckStepLimits(settings.max_batch_tokens, settings.num_threads));
  LedgerSource source;
  source.settings_ = settings;
  TQ_ASSIGN_OR_RETURN(source.shape_, ReadModelShape(path));
  if (!source.shape_.is_gguf || !source.shape_.cannot_run.empty()) return source;
  TQ_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
  TQ_ASSIGN_OR_RETURN(const Gguf file, Gguf::Parse(mapped.bytes(), path));
  TQ_ASSIGN_OR_RETURN(source.config_, ReadHyperparameters(file));
  source.footprint_ = MeasureFootprint(
      file, *source.config_,
      {.max_batch_tokens = settings.max_batch_tokens, .num_threads = settings.num_threads});
  source.shape_.weights_bytes = source.footprint_.weights.total();
  return source;
}

Result<LedgerSource> LedgerSource::Of(const Model& model, const Settings& settings) {
  TQ_RETURN_IF_ERROR(CheckStepLimits(settings.max_batch_tokens, settings.num_threads));
  LedgerSource source;
  source.settings_ = settings;
  source.config_ = model.config();
  source.shape_ = ModelShapeOf(model.config());
  source.footprint_ = MeasureFootprint(
      model, {.max_batch_tokens = settings.max_batch_tokens, .num_threads = settings.num_threads});
  source.shape_.weights_bytes = source.footprint_.weights.total();
  return source;
}

Result<RunBuffers> LedgerSource::Buffers(const LedgerOptions& options) const {
  const auto seqs = static_cast<uint64_t>(options.cache.max_num_seqs);
  RunBuffers buffers;
  buffers.logits = ProductOf({4, seqs, static_cast<uint64_t>(shape_.vocab_size)});
  if (!config_) {
    buffers.graphs = ModelledStepBytes(shape_, settings_.max_batch_tokens);
    buffers.origin = Origin::kModelled;
    return buffers;
  }
  TQ_ASSIGN_OR_RETURN(const CachePlan plan,
                      PlanWithoutLimit(CacheModelOf(*config_), options.cache));
  buffers.graphs = footprint_.step_bytes + footprint_.kept_bytes;
  TQ_ASSIGN_OR_RETURN(buffers.attention, AttentionBytes(*config_, plan, settings_));
  return buffers;
}

Result<Ledger> LedgerSource::Make(const LedgerOptions& asked) const {
  TQ_RETURN_IF_ERROR(CheckLedgerOptions(asked, shape_));
  Ledger ledger{.model = shape_, .options = asked};
  const bool ours = asked.engine == EngineKind::kTurboquant;
  if (ours && ledger.options.cache.block_size == 0)
    ledger.options.cache.block_size = kDefaultBlockSize;
  const LedgerOptions& options = ledger.options;
  if (ours && options.cache.max_num_seqs > settings_.max_batch_tokens) {
    return Fail(ErrorCode::kInvalidArgument,
                "--max-num-seqs {}: a step of {} tokens cannot serve more sequences "
                "(--max-batch-tokens)",
                options.cache.max_num_seqs, settings_.max_batch_tokens);
  }
  TQ_ASSIGN_OR_RETURN(
      ledger.profile,
      MakeCacheProfile(shape_, {.engine = options.engine,
                                .cache = options.cache,
                                .tensor_parallel_size = options.tensor_parallel_size,
                                .max_batch_tokens = settings_.max_batch_tokens}));
  ledger.notes = shape_.notes;
  ledger.notes.insert(ledger.notes.end(), ledger.profile->notes().begin(),
                      ledger.profile->notes().end());
  ledger.max_num_seqs = options.cache.max_num_seqs;
  ledger.max_model_len =
      options.cache.max_model_len > 0 ? options.cache.max_model_len : shape_.max_context;
  const uint64_t weights = options.weights_bytes.value_or(shape_.weights_bytes) /
                           static_cast<uint64_t>(options.tensor_parallel_size);
  if (ours) {
    TQ_ASSIGN_OR_RETURN(ledger.buffers, Buffers(options));
    TQ_ASSIGN_OR_RETURN(const CacheModel cache, CacheModelOf(shape_));
    ledger.runtime_bytes = RuntimeBytes(
        shape_, BlocksNeeded(options.cache.block_size, ledger.max_model_len, ledger.max_num_seqs));
    const uint64_t reserved = SumOf({weights, ledger.buffers.total(), ledger.runtime_bytes});
    TQ_RETURN_IF_ERROR(PlanOurs(cache, reserved, &ledger));
  } else {
    SetOtherLimits(weights, &ledger);
  }
  ledger.cache = ledger.profile->Bytes(ledger.max_model_len, ledger.max_num_seqs);
  if (!ledger.plan || ledger.pool_bytes < ledger.cache.total())
    ledger.pool_bytes = ledger.cache.total();
  const bool given = options.weights_bytes.has_value();
  std::ranges::sort(ledger.notes);
  const auto repeated = std::ranges::unique(ledger.notes);
  ledger.notes.erase(repeated.begin(), repeated.end());
  AddLine("weights", weights, given ? Origin::kExact : shape_.weights_origin,
          given ? "--weights-memory" : shape_.weights_note, &ledger);
  AddCacheLines(&ledger);
  AddRunLines(&ledger);
  return ledger;
}

}  // namespace turboquant
