#include "engine/verify_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "model/footprint.h"
#include "planner/host.h"

namespace turboquant {
namespace {

std::vector<SequenceId> AddSequences(KvCacheManager* cache, int count) {
  std::vector<SequenceId> ids;
  for (int i = 0; i < count; ++i) {
    const auto id = cache->AddSequence();
    CHECK(id.has_value());
    ids.push_back(*id);
  }
  return ids;
}

// A step of num_rows tokens over as many of the sequences as there are rows, each of which wants
// logits. Fewer rows where the sequences have no room left. False: nothing could be computed.
bool Step(ModelRunner* runner, std::span<const SequenceId> ids, int num_rows, int max_model_len) {
  const int vocabulary = runner->model().config().vocab_size;
  std::vector<int32_t> tokens(static_cast<size_t>(num_rows));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>((7 * i + 1) % static_cast<size_t>(vocabulary));
  const int used = std::min<int>(num_rows, static_cast<int>(ids.size()));
  std::vector<StepInput> inputs;
  int row = 0;
  for (int i = 0; i < used; ++i) {
    const SequenceId id = ids[static_cast<size_t>(i)];
    const int share = num_rows / used + (i < num_rows % used ? 1 : 0);
    const int count = std::min(share, max_model_len - runner->cache().NumTokens(id));
    if (count < 1 || !runner->cache().AllocateSlots(id, count)) continue;
    inputs.push_back(
        {.sequence = id,
         .tokens = std::span(tokens).subspan(static_cast<size_t>(row), static_cast<size_t>(count)),
         .logits = StepInput::Logits::kLast});
    row += count;
  }
  if (inputs.empty()) return false;
  runner->Execute(inputs);
  return true;
}

// Graphs of the largest step and of as many small ones as are kept. Sequences start anew where they
// are full.
void ComputeSteps(ModelRunner* runner, int num_seqs, int max_model_len) {
  KvCacheManager& cache = runner->cache();
  const int largest_kept = std::min(kMaxKeptRows, runner->max_batch_tokens());
  std::vector<int> rows = {runner->max_batch_tokens()};
  for (int i = 0; i < kMaxKeptGraphs && largest_kept - i > 0; ++i) rows.push_back(largest_kept - i);
  for (const int num_rows : rows) {
    const std::vector<SequenceId> ids = AddSequences(&cache, num_seqs);
    Step(runner, ids, num_rows, max_model_len);
    for (const SequenceId id : ids) cache.Free(id);
  }
}

// Fills the cache with sequences of max_model_len tokens, as many as there is room for, and touches
// every byte of their blocks. Returns the bytes of those.
uint64_t FillCache(KvCacheManager* cache, int num_seqs, int max_model_len) {
  const int block_size = cache->block_size();
  for (const SequenceId id : AddSequences(cache, num_seqs)) {
    const int64_t room = int64_t{cache->NumFreeBlocks() + 1} * block_size - 1;
    const int tokens = static_cast<int>(std::min<int64_t>(max_model_len, room));
    if (!cache->AllocateSlots(id, tokens)) break;
    for (size_t layer = 0; layer < cache->config().layers.size(); ++layer) {
      const PagedKvView view = cache->View(static_cast<int>(layer), id);
      for (size_t i = 0; i < view.blocks.size(); ++i)
        std::memset(view.Block(i), 0, view.bytes_per_block);
      std::memset(view.tail, 0, view.tail_spec->BytesPerBlock());
      if (view.sinks != nullptr) std::memset(view.sinks, 0, view.sink_spec->BytesPerBlock());
      for (int i = 0; i < view.recent_blocks; ++i)
        std::memset(view.RecentBlock(static_cast<size_t>(i)), 0, view.bytes_per_recent_block);
    }
    cache->Commit(id);
  }
  return cache->Stats().block_bytes_used;
}

}  // namespace

bool VerifiedFigure::ok() const {
  const double difference = std::abs(static_cast<double>(found) - static_cast<double>(planned));
  return difference <= tolerance * static_cast<double>(planned);
}

bool VerifyReport::ok() const { return std::ranges::all_of(figures, &VerifiedFigure::ok); }

Result<VerifyReport> VerifyPlan(const std::string& path, const Ledger& ledger,
                                EngineOptions options, double tolerance) {
  CHECK(ledger.plan.has_value());
  const CachePlan& plan = *ledger.plan;
  // What start-up would find is settled: the same cache, whatever memory was planned for.
  options.cache.kv_cache_memory = plan.pool_bytes + plan.sequence_bytes;
  TQ_ASSIGN_OR_RETURN(auto model, Model::Load({.path = path}));
  TQ_ASSIGN_OR_RETURN(auto engine, Engine::Create(std::move(model), std::move(options)));
  ModelRunner& runner = engine->runner();
  ComputeSteps(&runner, plan.max_num_seqs, plan.max_model_len);
  const uint64_t touched = FillCache(&runner.cache(), plan.max_num_seqs, plan.max_model_len);
  TQ_ASSIGN_OR_RETURN(const uint64_t resident, ResidentBytes());
  const KvCacheStats stats = runner.cache().Stats();
  VerifyReport report;
  report.figures = {
      {"weights", ledger.weights_bytes(), engine->model().weight_bytes(), 0},
      {"pool of blocks", plan.pool_bytes, stats.block_bytes_reserved, 0},
      {"tails and sinks", plan.sequence_bytes, stats.sequence_bytes_reserved, 0},
      {"one block, all layers", plan.block_bytes, runner.cache().BytesPerBlockAllLayers(), 0},
      {"total at start-up", ledger.total_bytes, engine->ledger().total_bytes, 0},
      {"resident memory", ledger.total_bytes - (plan.pool_bytes - touched), resident, tolerance},
  };
  return report;
}

}  // namespace turboquant
