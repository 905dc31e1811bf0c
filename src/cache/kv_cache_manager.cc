#include "cache/kv_cache_manager.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "cache/block_table.h"
#include "cache/slot_arena.h"

namespace turboquant {
namespace {

constexpr int kNoSlot = -1;

bool IsExact(const KvCacheSpec& spec) {
  const KvCacheSpec exact = ExactSpec(spec, spec.block_size);
  return spec.k == exact.k && spec.v == exact.v;
}

Status Validate(const KvCacheConfig& config) {
  if (config.layers.empty())
    return Fail(ErrorCode::kInvalidArgument, "a cache needs at least one layer");
  if (config.num_blocks < 1 || config.num_blocks > kMaxBlocks) {
    return Fail(ErrorCode::kInvalidArgument, "a cache of {} blocks: must be 1 to {}",
                config.num_blocks, kMaxBlocks);
  }
  if (config.max_num_seqs < 1) {
    return Fail(ErrorCode::kInvalidArgument, "a cache needs room for at least one sequence, not {}",
                config.max_num_seqs);
  }
  if (config.num_sink_tokens < 0 || config.num_sink_tokens > kSinkTileTokens) {
    return Fail(ErrorCode::kInvalidArgument, "{} sink tokens: must be 0 to {}",
                config.num_sink_tokens, kSinkTileTokens);
  }
  if (config.num_recent_tokens < 0 || config.num_recent_tokens % config.layers[0].block_size != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "{} recent tokens: must be a multiple of the block size {}",
                config.num_recent_tokens, config.layers[0].block_size);
  }
  if (!config.static_scales.empty() && config.static_scales.size() != config.layers.size()) {
    return Fail(ErrorCode::kInvalidArgument, "static scales for {} layers, the cache has {}",
                config.static_scales.size(), config.layers.size());
  }
  const KvStaticScales none;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const KvCacheSpec& spec = config.layers[i];
    const int layer = static_cast<int>(i);
    if (auto status = spec.Validate(); !status) {
      return Fail(status.error().code, "layer {}: {}", layer, status.error().message);
    }
    if (spec.block_size != config.layers[0].block_size) {
      return Fail(ErrorCode::kInvalidArgument, "layer {}: block size {}, layer 0 has {}", layer,
                  spec.block_size, config.layers[0].block_size);
    }
    const KvStaticScales& scales = config.static_scales.empty() ? none : config.static_scales[i];
    if (auto status = ValidateStaticScales(spec, scales); !status) {
      return Fail(status.error().code, "layer {}: {}", layer, status.error().message);
    }
  }
  return {};
}

struct Layer {
  explicit Layer(const KvCacheSpec& layer_spec)
      : spec(layer_spec),
        tail_spec(ExactSpec(spec, spec.block_size)),
        sink_spec(ExactSpec(spec, kSinkTileTokens)),
        layout(spec),
        tail_layout(tail_spec),
        sink_layout(sink_spec) {}

  KvCacheSpec spec, tail_spec, sink_spec;
  KvBlockLayout layout, tail_layout, sink_layout;
  KvStaticScales static_scales;
  int num_sink_tokens = 0;  // 0 also where closed blocks are exact
  int recent_blocks = 0;    // 0 also where the layer keeps no copies
  size_t recent_block_bytes = 0;
  SlotArena blocks, tails, sinks, recents;
};

struct Sequence {
  explicit Sequence(int block_size) : table(block_size) {}
  BlockTable table;
  int sink_slot = kNoSlot;
};

}  // namespace

KvCacheSpec ExactSpec(const KvCacheSpec& spec, int num_tokens) {
  const bool f32 = spec.k.dtype == KvCacheDtype::kF32 || spec.v.dtype == KvCacheDtype::kF32;
  const KvSideSpec side = {.dtype = f32 ? KvCacheDtype::kF32 : KvCacheDtype::kF16,
                           .granularity = ScaleGranularity::kNone,
                           .group_size = 0};
  KvCacheSpec exact = spec;
  exact.k = side;
  exact.v = side;
  exact.block_size = num_tokens;
  return exact;
}

std::optional<KvCacheSpec> RecentSpec(const KvCacheSpec& spec) {
  const bool narrow = CodeBits(spec.k.dtype) < 8 || CodeBits(spec.v.dtype) < 8;
  if (!narrow || IsStatic(spec.k.granularity) || IsStatic(spec.v.granularity)) return std::nullopt;
  KvCacheSpec recent = spec;
  recent.k = {.dtype = KvCacheDtype::kInt8, .granularity = ScaleGranularity::kPerTokenHeadU8};
  recent.v = recent.k;
  if (IsRotated(spec.k.transform)) {
    recent.k.transform = spec.k.transform == KvTransform::kBalanced ? KvTransform::kBalanced
                                                                    : KvTransform::kCentered;
  }
  if (IsRotated(spec.v.transform)) recent.v.transform = KvTransform::kRotated;
  return recent;
}

size_t BytesPerSequence(const KvCacheConfig& config) {
  size_t bytes = 0;
  for (const KvCacheSpec& spec : config.layers) {
    bytes += ExactSpec(spec, spec.block_size).BytesPerBlock();
    if (config.num_sink_tokens > 0 && !IsExact(spec))
      bytes += ExactSpec(spec, kSinkTileTokens).BytesPerBlock();
    if (const auto recent = RecentSpec(spec)) {
      bytes +=
          static_cast<size_t>(config.num_recent_tokens / spec.block_size) * recent->BytesPerBlock();
    }
  }
  return bytes;
}

// Address space of every layer; no memory yet.
static Result<std::vector<Layer>> ReserveLayers(const KvCacheConfig& config) {
  std::vector<Layer> layers;
  layers.reserve(config.layers.size());
  for (size_t i = 0; i < config.layers.size(); ++i) {
    Layer& layer = layers.emplace_back(config.layers[i]);
    if (!config.static_scales.empty()) layer.static_scales = config.static_scales[i];
    TQ_ASSIGN_OR_RETURN(layer.blocks,
                        SlotArena::Reserve(config.num_blocks, layer.spec.BytesPerBlock()));
    TQ_ASSIGN_OR_RETURN(layer.tails,
                        SlotArena::Reserve(config.max_num_seqs, layer.tail_spec.BytesPerBlock()));
    if (const auto recent = RecentSpec(layer.spec); recent && config.num_recent_tokens > 0) {
      layer.recent_blocks = config.num_recent_tokens / layer.spec.block_size;
      layer.recent_block_bytes = recent->BytesPerBlock();
      TQ_ASSIGN_OR_RETURN(
          layer.recents,
          SlotArena::Reserve(config.max_num_seqs,
                             static_cast<size_t>(layer.recent_blocks) * layer.recent_block_bytes));
    }
    if (config.num_sink_tokens == 0 || IsExact(layer.spec)) continue;
    layer.num_sink_tokens = config.num_sink_tokens;
    TQ_ASSIGN_OR_RETURN(layer.sinks,
                        SlotArena::Reserve(config.max_num_seqs, layer.sink_spec.BytesPerBlock()));
  }
  return layers;
}

struct KvCacheManager::Impl {
  Impl(KvCacheConfig cache_config, std::vector<Layer> cache_layers)
      : config(std::move(cache_config)),
        block_size(config.layers[0].block_size),
        pool(config.num_blocks),
        layers(std::move(cache_layers)),
        sequences(static_cast<size_t>(config.max_num_seqs)),
        sink_refs(static_cast<size_t>(config.max_num_seqs), 0) {
    for (const Layer& layer : layers) {
      bytes_per_block += layer.blocks.bytes_per_slot();
      tail_bytes += layer.tails.bytes_per_slot() + layer.recents.bytes_per_slot();
      sink_bytes += layer.sinks.bytes_per_slot();  // 0 where the layer keeps none
    }
  }

  Sequence& At(SequenceId id);
  std::optional<SequenceId> AddSequence(bool zero_tail);
  bool AcquireBlock(BlockId id);
  void ReleaseBlock(BlockId id);
  int AcquireSinkSlot();
  void ReleaseSinkSlot(int slot);

  KvCacheConfig config;
  int block_size;
  BlockPool pool;
  std::vector<Layer> layers;
  std::vector<std::optional<Sequence>> sequences;  // by id
  std::vector<int> sink_refs;                      // by sink slot: sequences that share it
  // Over all layers; tail_bytes with recent copies.
  size_t bytes_per_block = 0, tail_bytes = 0, sink_bytes = 0;
};

Sequence& KvCacheManager::Impl::At(SequenceId id) {
  CHECK_GE(id.value, 0);
  CHECK_LT(static_cast<size_t>(id.value), sequences.size());
  std::optional<Sequence>& sequence = sequences[static_cast<size_t>(id.value)];
  CHECK(sequence.has_value());
  return *sequence;
}

std::optional<SequenceId> KvCacheManager::Impl::AddSequence(bool zero_tail) {
  const auto slot =
      std::ranges::find_if(sequences, [](const auto& sequence) { return !sequence.has_value(); });
  if (slot == sequences.end()) return std::nullopt;
  const auto id = static_cast<int32_t>(slot - sequences.begin());
  for (Layer& layer : layers) {
    if (!layer.tails.Acquire(id)) return std::nullopt;
    if (layer.recent_blocks > 0 && !layer.recents.Acquire(id)) return std::nullopt;
    if (zero_tail) std::memset(layer.tails.at(id), 0, layer.tails.bytes_per_slot());
  }
  slot->emplace(block_size);
  return SequenceId{id};
}

bool KvCacheManager::Impl::AcquireBlock(BlockId id) {
  return std::ranges::all_of(
      layers, [id](Layer& layer) { return layer.blocks.Acquire(id.value).has_value(); });
}

void KvCacheManager::Impl::ReleaseBlock(BlockId id) {
  if (!pool.Release(id)) return;
  for (Layer& layer : layers) layer.blocks.Retire(id.value);
}

// A zeroed sink tile in every layer that keeps sinks; kNoSlot if the system gives no memory.
int KvCacheManager::Impl::AcquireSinkSlot() {
  const auto free = std::ranges::find(sink_refs, 0);
  CHECK(free != sink_refs.end());  // a sequence holds at most one
  const auto slot = static_cast<int>(free - sink_refs.begin());
  for (Layer& layer : layers) {
    if (layer.num_sink_tokens == 0) continue;
    if (!layer.sinks.Acquire(slot)) return kNoSlot;
    std::memset(layer.sinks.at(slot), 0, layer.sinks.bytes_per_slot());
  }
  *free = 1;
  return slot;
}

void KvCacheManager::Impl::ReleaseSinkSlot(int slot) {
  int& refs = sink_refs[static_cast<size_t>(slot)];
  CHECK_GT(refs, 0);
  if (--refs > 0) return;
  for (Layer& layer : layers) {
    if (layer.num_sink_tokens > 0) layer.sinks.Retire(slot);
  }
}

KvCacheManager::KvCacheManager(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KvCacheManager::~KvCacheManager() = default;

Result<std::unique_ptr<KvCacheManager>> KvCacheManager::Create(KvCacheConfig config) {
  TQ_RETURN_IF_ERROR(Validate(config));
  TQ_ASSIGN_OR_RETURN(std::vector<Layer> layers, ReserveLayers(config));
  auto impl = std::make_unique<Impl>(std::move(config), std::move(layers));
  return std::unique_ptr<KvCacheManager>(new KvCacheManager(std::move(impl)));
}

std::optional<SequenceId> KvCacheManager::AddSequence() {
  return impl_->AddSequence(/*zero_tail=*/true);
}

bool KvCacheManager::AllocateSlots(SequenceId id, int num_tokens) {
  Sequence& sequence = impl_->At(id);
  const int needed = sequence.table.BlocksToClose(num_tokens);
  if (needed > impl_->pool.num_free()) return false;
  if (sequence.sink_slot == kNoSlot && impl_->sink_bytes > 0) {
    sequence.sink_slot = impl_->AcquireSinkSlot();
    if (sequence.sink_slot == kNoSlot) return false;
  }
  std::vector<BlockId> blocks;
  blocks.reserve(static_cast<size_t>(needed));
  for (int i = 0; i < needed; ++i) {
    blocks.push_back(*impl_->pool.Allocate());
    if (!impl_->AcquireBlock(blocks.back())) {
      impl_->pool.Release(blocks.back());  // not all of its pages are there to be poisoned
      blocks.pop_back();
      for (const BlockId block : blocks) impl_->ReleaseBlock(block);
      return false;
    }
  }
  sequence.table.Reserve(num_tokens, blocks);
  return true;
}

void KvCacheManager::Commit(SequenceId id) { impl_->At(id).table.Commit(); }

std::optional<SequenceId> KvCacheManager::Fork(SequenceId parent_id) {
  Sequence& parent = impl_->At(parent_id);
  CHECK_EQ(parent.table.num_reserved(), 0);
  // The sinks are shared once no one will write to them any more.
  const bool share_sinks = parent.table.num_tokens() >= impl_->config.num_sink_tokens;
  const std::optional<SequenceId> id = impl_->AddSequence(/*zero_tail=*/false);
  if (!id) return std::nullopt;
  Sequence& child = impl_->At(*id);
  if (parent.sink_slot != kNoSlot) {
    child.sink_slot = share_sinks ? parent.sink_slot : impl_->AcquireSinkSlot();
    if (child.sink_slot == kNoSlot) {
      Free(*id);
      return std::nullopt;
    }
    if (share_sinks) ++impl_->sink_refs[static_cast<size_t>(parent.sink_slot)];
  }
  for (Layer& layer : impl_->layers) {
    std::memcpy(layer.tails.at(id->value), layer.tails.at(parent_id.value),
                layer.tails.bytes_per_slot());
    if (layer.recent_blocks > 0) {
      std::memcpy(layer.recents.at(id->value), layer.recents.at(parent_id.value),
                  layer.recents.bytes_per_slot());
    }
    if (child.sink_slot != parent.sink_slot && layer.num_sink_tokens > 0) {
      std::memcpy(layer.sinks.at(child.sink_slot), layer.sinks.at(parent.sink_slot),
                  layer.sinks.bytes_per_slot());
    }
  }
  child.table = parent.table;
  for (const BlockId block : child.table.blocks()) impl_->pool.AddRef(block);
  return id;
}

void KvCacheManager::Free(SequenceId id) {
  Sequence& sequence = impl_->At(id);
  // Last block first: the next sequence then gets them in the order of their addresses.
  const std::span<const BlockId> blocks = sequence.table.blocks();
  for (size_t i = blocks.size(); i-- > 0;) impl_->ReleaseBlock(blocks[i]);
  if (sequence.sink_slot != kNoSlot) impl_->ReleaseSinkSlot(sequence.sink_slot);
  for (Layer& layer : impl_->layers) {
    layer.tails.Retire(id.value);
    if (layer.recent_blocks > 0) layer.recents.Retire(id.value);
  }
  impl_->sequences[static_cast<size_t>(id.value)].reset();
}

int KvCacheManager::NumTokens(SequenceId id) const { return impl_->At(id).table.num_tokens(); }

int KvCacheManager::NumReservedTokens(SequenceId id) const {
  return impl_->At(id).table.num_reserved();
}

int KvCacheManager::NumFreeBlocks() const { return impl_->pool.num_free(); }

int KvCacheManager::NumBlocksNeeded(SequenceId id, int num_tokens) const {
  return impl_->At(id).table.BlocksToClose(num_tokens);
}

PagedKvView KvCacheManager::View(int layer_index, SequenceId id) const {
  CHECK_GE(layer_index, 0);
  CHECK_LT(static_cast<size_t>(layer_index), impl_->layers.size());
  const Layer& layer = impl_->layers[static_cast<size_t>(layer_index)];
  const Sequence& sequence = impl_->At(id);
  const bool has_sinks = layer.num_sink_tokens > 0 && sequence.sink_slot != kNoSlot;
  return {.spec = &layer.spec,
          .layout = &layer.layout,
          .static_scales = &layer.static_scales,
          .arena = layer.blocks.data(),
          .bytes_per_block = layer.blocks.bytes_per_slot(),
          .blocks = sequence.table.blocks(),
          .tail_spec = &layer.tail_spec,
          .tail_layout = &layer.tail_layout,
          .tail = layer.tails.at(id.value),
          .sink_spec = &layer.sink_spec,
          .sink_layout = &layer.sink_layout,
          .sinks = has_sinks ? layer.sinks.at(sequence.sink_slot) : nullptr,
          .num_sink_tokens = has_sinks ? layer.num_sink_tokens : 0,
          .bytes_per_recent_block = layer.recent_block_bytes,
          .recent = layer.recent_blocks > 0 ? layer.recents.at(id.value) : nullptr,
          .recent_blocks = layer.recent_blocks};
}

const KvCacheConfig& KvCacheManager::config() const { return impl_->config; }

int KvCacheManager::block_size() const { return impl_->block_size; }

KvCacheStats KvCacheManager::Stats() const {
  KvCacheStats stats;
  const auto blocks = [this](int count) {
    return static_cast<size_t>(count) * impl_->bytes_per_block;
  };
  stats.num_blocks = impl_->pool.num_blocks();
  stats.num_free_blocks = impl_->pool.num_free();
  stats.block_bytes_used = blocks(stats.num_blocks - stats.num_free_blocks);
  stats.block_bytes_committed = blocks(impl_->pool.peak_used());
  stats.block_bytes_reserved = blocks(stats.num_blocks);
  for (const std::optional<Sequence>& sequence : impl_->sequences) {
    if (!sequence) continue;
    ++stats.num_sequences;
    stats.num_tokens += sequence->table.num_tokens();
    stats.sequence_bytes_used += impl_->tail_bytes;
  }
  const auto sinks_used =
      std::ranges::count_if(impl_->sink_refs, [](int refs) { return refs > 0; });
  stats.sequence_bytes_used += static_cast<size_t>(sinks_used) * impl_->sink_bytes;
  stats.sequence_bytes_reserved =
      static_cast<size_t>(impl_->config.max_num_seqs) * BytesPerSequence();
  return stats;
}

size_t KvCacheManager::BytesPerBlockAllLayers() const { return impl_->bytes_per_block; }

size_t KvCacheManager::BytesPerSequence() const { return impl_->tail_bytes + impl_->sink_bytes; }

}  // namespace turboquant
