#include "attention/paged_attention.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "attention/attend.h"
#include "attention/kv_store.h"
#include "attention/layer_context.h"
#include "attention/step_plan.h"
#include "base/aligned_buffer.h"
#include "base/check.h"

namespace turboquant {
namespace {

// Next units of one layer; a line of its own, so that a late thread of one layer does not disturb
// the next one.
struct alignas(kCacheLineBytes) LayerCounters {
  std::atomic<int> store, attend, merge, keep;
};

size_t RoundUpToLine(size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

// Adds the wall time of a scope to *total; thread 0 only, so that the sum is time and not work.
class ScopedTimer {
 public:
  ScopedTimer(double* total, int thread) : total_(thread == 0 ? total : nullptr) {}
  ~ScopedTimer() {
    if (total_ != nullptr) *total_ += std::chrono::duration<double>(Clock::now() - start_).count();
  }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double* total_;
  Clock::time_point start_ = Clock::now();
};

// Rows x head_dim floats and two floats per row, each array on its own lines.
struct StateExtent {
  size_t num_rows = 0, num_output_floats = 0;
  size_t Bytes() const {
    return RoundUpToLine(num_output_floats * sizeof(float)) +
           2 * RoundUpToLine(num_rows * sizeof(float));
  }
  AttentionState Place(uint8_t* memory) const {
    uint8_t* max = memory + RoundUpToLine(num_output_floats * sizeof(float));
    return {.output = reinterpret_cast<float*>(memory),
            .max = reinterpret_cast<float*>(max),
            .sum = reinterpret_cast<float*>(max + RoundUpToLine(num_rows * sizeof(float)))};
  }
  void Cover(size_t rows, size_t head_dim) {
    num_rows = std::max(num_rows, rows);
    num_output_floats = std::max(num_output_floats, rows * head_dim);
  }
};

}  // namespace

struct PagedAttention::Impl {
  Impl(KvCacheManager* cache_manager, const AttentionLimits& attention_limits)
      : manager(cache_manager),
        limits(attention_limits),
        store_plan(cache_manager->block_size(), attention_limits) {}

  void AddLayer(const LayerContext& layer);
  void AllocateMemory();
  void CheckChunks(std::span<const SequenceChunk> chunks) const;
  AttendScratch ScratchOf(int thread);
  AttendTask TaskOf(int layer);
  void ObserveQueries(const AttendTask& task) const;

  KvCacheManager* manager;
  AttentionLimits limits;
  std::vector<LayerContext> layers;
  std::vector<LayerCounters> counters;  // [layers]
  StorePlan store_plan;
  std::vector<AttendPlan> attend_plans;  // one per distinct shape
  std::vector<size_t> plan_of_layer;
  std::vector<SequenceChunk> chunks;
  std::vector<BlockTable> tables;  // of the chunks; BeginStep's only

  AlignedBuffer<uint8_t> staging;  // [staging tiles] x the largest layer's exact block
  AlignedBuffer<uint8_t> recent;   // [closed blocks of a step] x the largest layer's recent copy
  AlignedBuffer<uint8_t> partials;
  AlignedBuffer<uint8_t> scratch;  // [max_threads] x scratch_bytes
  StateExtent partial_extent, unit_extent;
  size_t staging_tile_bytes = 0, recent_block_bytes = 0, prepared_bytes = 0, rotated_bytes = 0,
         store_bytes = 0, scratch_bytes = 0;

  KvObserver* observer = nullptr;
  KvBlockObserver* block_observer = nullptr;
  const KvRecipe* recipe = nullptr;
  AttentionStandIn* stand_in = nullptr;
  SaturationCounts saturation;
  double attend_seconds = 0;
};

void PagedAttention::Impl::AddLayer(const LayerContext& layer) {
  CHECK_GT(layer.shape.num_heads, 0);
  CHECK_EQ(layer.shape.num_heads % layer.shape.num_kv_heads, 0);
  CHECK_LE(layer.shape.head_dim, kMaxHeadDim);
  CHECK_GE(layer.shape.sliding_window, 0);
  const auto plan = std::ranges::find(attend_plans, layer.shape, &AttendPlan::shape);
  plan_of_layer.push_back(static_cast<size_t>(plan - attend_plans.begin()));
  if (plan == attend_plans.end()) {
    attend_plans.emplace_back(layer.shape, layer.coded.spec.block_size, limits);
  }
  const auto head_dim = static_cast<size_t>(layer.shape.head_dim);
  const AttendPlan& used = attend_plans[plan_of_layer.back()];
  partial_extent.Cover(used.max_partial_rows(), head_dim);
  unit_extent.Cover(used.max_unit_rows(), head_dim);
  prepared_bytes =
      std::max(prepared_bytes, used.max_unit_rows() * std::max(layer.coded.PreparedRowBytes(),
                                                               layer.exact.PreparedRowBytes()));
  if (layer.recent) {
    prepared_bytes =
        std::max(prepared_bytes, used.max_unit_rows() * layer.recent->PreparedRowBytes());
    recent_block_bytes = std::max(recent_block_bytes, layer.recent->BytesPerBlock());
  }
  staging_tile_bytes = std::max(staging_tile_bytes, layer.exact.BytesPerBlock());
  rotated_bytes = std::max(rotated_bytes, used.max_unit_rows() * head_dim * sizeof(float));
  store_bytes = std::max(store_bytes, KvStoreScratchFloats(layer.coded.spec) * sizeof(float));
  layers.push_back(layer);
}

void PagedAttention::Impl::AllocateMemory() {
  constexpr size_t kScoreBytes = size_t{kMaxTileRows} * kMaxTileTokens * sizeof(float);
  const size_t attend_bytes =
      RoundUpToLine(prepared_bytes) + kScoreBytes + 2 * unit_extent.Bytes() + rotated_bytes;
  scratch_bytes = std::max(RoundUpToLine(store_bytes), attend_bytes);
  scratch = AlignedBuffer<uint8_t>(static_cast<size_t>(limits.max_threads) * scratch_bytes);
  staging = AlignedBuffer<uint8_t>(static_cast<size_t>(store_plan.max_staging_tiles()) *
                                   staging_tile_bytes);
  recent = AlignedBuffer<uint8_t>(static_cast<size_t>(store_plan.max_closed_blocks()) *
                                  recent_block_bytes);
  partials = AlignedBuffer<uint8_t>(partial_extent.Bytes());
  chunks.reserve(static_cast<size_t>(limits.max_num_seqs));
  tables.reserve(static_cast<size_t>(limits.max_num_seqs));
}

void PagedAttention::Impl::CheckChunks(std::span<const SequenceChunk> step) const {
  CHECK_LE(step.size(), static_cast<size_t>(limits.max_num_seqs));
  int num_tokens = 0;
  for (const SequenceChunk& chunk : step) {
    CHECK_GT(chunk.num_tokens, 0);
    CHECK_EQ(chunk.start, manager->NumTokens(chunk.sequence));
    CHECK_EQ(chunk.num_tokens, manager->NumReservedTokens(chunk.sequence));
    CHECK_LE(chunk.start + chunk.num_tokens, limits.max_context);
    CHECK_GE(chunk.first_row, 0);
    num_tokens += chunk.num_tokens;
  }
  CHECK_LE(num_tokens, limits.max_batch_tokens);
}

AttendScratch PagedAttention::Impl::ScratchOf(int thread) {
  uint8_t* memory = scratch.data() + static_cast<size_t>(thread) * scratch_bytes;
  AttendScratch result;
  result.prepared_q = memory;
  memory += RoundUpToLine(prepared_bytes);
  result.merged = unit_extent.Place(memory);
  memory += unit_extent.Bytes();
  result.current = unit_extent.Place(memory);
  memory += unit_extent.Bytes();
  result.rotated = reinterpret_cast<float*>(memory);
  memory += rotated_bytes;
  result.scores = reinterpret_cast<float*>(memory);
  return result;
}

void PagedAttention::Impl::ObserveQueries(const AttendTask& task) const {
  const LayerShape& shape = task.layer->shape;
  for (const SequenceChunk& chunk : chunks) {
    const float* rows = task.q + static_cast<size_t>(chunk.first_row) * task.q_stride;
    for (int head = 0; head < shape.num_heads; ++head) {
      observer->ObserveQueries(
          task.layer->index, head / shape.HeadsPerGroup(),
          rows + static_cast<size_t>(head) * static_cast<size_t>(shape.head_dim), task.q_stride,
          chunk.num_tokens);
    }
  }
}

AttendTask PagedAttention::Impl::TaskOf(int layer) {
  const auto index = static_cast<size_t>(layer);
  return {.layer = &layers[index],
          .plan = &attend_plans[plan_of_layer[index]],
          .store_plan = &store_plan,
          .chunks = chunks,
          .manager = manager,
          .staging = staging.data(),
          .recent = recent.data(),
          .partials = partial_extent.Place(partials.data()),
          .q = nullptr,
          .q_stride = 0,
          .out = nullptr,
          .out_stride = 0};
}

PagedAttention::PagedAttention(KvCacheManager* manager, const KernelTable* kernels,
                               std::vector<LayerAttentionParams> params,
                               const AttentionLimits& limits)
    : impl_(std::make_unique<Impl>(manager, limits)) {
  const std::vector<KvCacheSpec>& specs = manager->config().layers;
  CHECK_EQ(params.size(), specs.size());
  CHECK_GT(limits.max_threads, 0);
  CHECK_GT(limits.max_num_seqs, 0);
  CHECK_GT(limits.max_batch_tokens, 0);
  CHECK_GT(limits.max_context, 0);
  for (size_t i = 0; i < specs.size(); ++i) {
    impl_->AddLayer(LayerContext(static_cast<int>(i), specs[i], manager->config().num_recent_tokens,
                                 params[i], *kernels));
  }
  impl_->counters = std::vector<LayerCounters>(specs.size());
  impl_->saturation = ZeroCounts(specs);
  impl_->AllocateMemory();
}

PagedAttention::~PagedAttention() = default;

void PagedAttention::BeginStep(std::span<const SequenceChunk> chunks) {
  impl_->CheckChunks(chunks);
  impl_->chunks.assign(chunks.begin(), chunks.end());
  impl_->store_plan.Build(impl_->chunks);
  impl_->tables.clear();
  for (const SequenceChunk& chunk : chunks) {
    impl_->tables.push_back(impl_->manager->View(0, chunk.sequence).blocks);
  }
  for (AttendPlan& plan : impl_->attend_plans) plan.Build(impl_->chunks, impl_->tables);
  for (LayerCounters& counters : impl_->counters) {
    counters.store.store(0, std::memory_order_relaxed);
    counters.attend.store(0, std::memory_order_relaxed);
    counters.merge.store(0, std::memory_order_relaxed);
    counters.keep.store(0, std::memory_order_relaxed);
  }
}

void PagedAttention::StoreKv(int layer, const float* k, size_t k_stride, const float* v,
                             size_t v_stride, int ith, [[maybe_unused]] int nth) {
  DCHECK_LE(nth, impl_->limits.max_threads);
  if (impl_->stand_in != nullptr) {
    return impl_->stand_in->StoreKv(layer, impl_->chunks, k, k_stride, v, v_stride, ith, nth);
  }
  const auto index = static_cast<size_t>(layer);
  const LayerContext& context = impl_->layers[index];
  const std::span<const StoreUnit> units = impl_->store_plan.units();
  const int num_heads = context.shape.num_kv_heads;
  const int num_units = static_cast<int>(units.size()) * num_heads;
  uint8_t* scratch = impl_->scratch.data() + static_cast<size_t>(ith) * impl_->scratch_bytes;
  std::atomic<int>& next = impl_->counters[index].store;
  for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_units;) {
    const StoreUnit& unit = units[static_cast<size_t>(i / num_heads)];
    const SequenceChunk& chunk = impl_->chunks[static_cast<size_t>(unit.chunk)];
    const int staged = impl_->store_plan.StagingTile(unit.chunk, unit.block);
    StoreKvUnit({.layer = &context,
                 .rows = {.k = k, .k_stride = k_stride, .v = v, .v_stride = v_stride},
                 .chunk = chunk,
                 .unit = unit,
                 .head = i % num_heads,
                 .view = impl_->manager->View(layer, chunk.sequence),
                 .plan = &impl_->store_plan,
                 .staging = staged < 0 ? nullptr
                                       : impl_->staging.data() + static_cast<size_t>(staged) *
                                                                     context.exact.BytesPerBlock(),
                 .recent = impl_->recent.data(),
                 .scratch = reinterpret_cast<float*>(scratch),
                 .observer = impl_->observer,
                 .block_observer = impl_->block_observer,
                 .recipe = impl_->recipe,
                 .saturation = &impl_->saturation.layers[index]});
  }
}

void PagedAttention::Attend(int layer, const float* q, size_t q_stride, float* out,
                            size_t out_stride, int ith, [[maybe_unused]] int nth) {
  DCHECK_LE(nth, impl_->limits.max_threads);
  const ScopedTimer timer(&impl_->attend_seconds, ith);
  if (impl_->stand_in != nullptr) {
    return impl_->stand_in->Attend(layer, impl_->chunks, q, q_stride, out, out_stride, ith, nth);
  }
  AttendTask task = impl_->TaskOf(layer);
  task.q = q;
  task.q_stride = q_stride;
  task.out = out;
  task.out_stride = out_stride;
  if (impl_->observer != nullptr && ith == 0) impl_->ObserveQueries(task);
  AttendScratch scratch = impl_->ScratchOf(ith);
  const std::span<const AttendUnit> units = task.plan->units();
  const int num_units = static_cast<int>(units.size());
  std::atomic<int>& next = impl_->counters[static_cast<size_t>(layer)].attend;
  for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_units;) {
    AttendOneUnit(task, units[static_cast<size_t>(i)], &scratch);
  }
}

void PagedAttention::Merge(int layer, float* out, size_t out_stride, int ith, int nth) {
  DCHECK_LE(nth, impl_->limits.max_threads);
  if (impl_->stand_in != nullptr) return;
  const ScopedTimer timer(&impl_->attend_seconds, ith);
  AttendTask task = impl_->TaskOf(layer);
  task.out = out;
  task.out_stride = out_stride;
  AttendScratch scratch = impl_->ScratchOf(ith);
  const std::span<const int> tiles = task.plan->merge_tiles();
  const int num_heads = task.layer->shape.num_kv_heads;
  const int num_units = static_cast<int>(tiles.size()) * num_heads;
  std::atomic<int>& next = impl_->counters[static_cast<size_t>(layer)].merge;
  for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_units;) {
    MergeHead(task, tiles[static_cast<size_t>(i / num_heads)], i % num_heads, &scratch);
  }
  KeepRecent(layer, ith, nth);
}

void PagedAttention::KeepRecent(int layer, [[maybe_unused]] int ith, [[maybe_unused]] int nth) {
  DCHECK_LE(nth, impl_->limits.max_threads);
  const AttendTask task = impl_->TaskOf(layer);
  if (!task.layer->recent) return;
  const int num_closed = static_cast<int>(impl_->store_plan.closed_blocks().size());
  std::atomic<int>& next = impl_->counters[static_cast<size_t>(layer)].keep;
  for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_closed;) {
    KeepRecentCopy(task, i);
  }
}

void PagedAttention::set_observer(KvObserver* observer) { impl_->observer = observer; }

void PagedAttention::set_block_observer(KvBlockObserver* observer) {
  impl_->block_observer = observer;
}

void PagedAttention::set_recipe(const KvRecipe* recipe) { impl_->recipe = recipe; }

void PagedAttention::set_stand_in(AttentionStandIn* stand_in) { impl_->stand_in = stand_in; }

void PagedAttention::ScaleScores(float factor) {
  for (LayerContext& layer : impl_->layers) layer.params.scale *= factor;
}

const SaturationCounts& PagedAttention::saturation() const { return impl_->saturation; }

double PagedAttention::attend_seconds() const { return impl_->attend_seconds; }

size_t PagedAttention::scratch_bytes_per_thread() const { return impl_->scratch_bytes; }

size_t PagedAttention::shared_bytes() const {
  size_t bytes = impl_->staging.size() + impl_->recent.size() + impl_->partials.size() +
                 impl_->store_plan.reserved_bytes() +
                 impl_->counters.capacity() * sizeof(LayerCounters) +
                 impl_->chunks.capacity() * sizeof(SequenceChunk) +
                 impl_->tables.capacity() * sizeof(BlockTable);
  for (const AttendPlan& plan : impl_->attend_plans) bytes += plan.reserved_bytes();
  return bytes;
}

}  // namespace turboquant
