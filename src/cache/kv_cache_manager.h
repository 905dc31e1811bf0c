// Front of the cache: sequences, their blocks, exact tails and sinks, and the memory behind them.
//
// Every layer owns an arena of reserved address space; block b of layer l starts at b *
// BytesPerBlock(l) and its pages are committed when the block is first used. A block is written
// once, when its last token arrives (closed), and never changes after that: sharing it is a
// reference count. The newest block_size tokens of a sequence that are not in a closed block live
// in its tail, and the first num_sink_tokens in a sink tile that belongs to block 0 and is shared
// with it. Both hold exact values (f16, or f32 when the layer stores f32) in the block layout of
// that format (codec/kv_cache_spec.h). Slots of tails and sink tiles that the sequence has not
// written read as zero, whoever used the memory before.
//
// With num_recent_tokens the newest closed blocks of a sequence are there twice where a layer's
// codes are narrow: beside the narrow codes an int8 copy, in a ring that belongs to the sequence
// (block b in slot b % recent_blocks). Forks copy the ring.
//
// With TURBOQUANT_POISON_FREED what is freed is filled with VirtualArena::kPoisonByte, and under
// AddressSanitizer an access to it is an error.
//
// Not thread-safe; views handed out may be read and written by many threads as long as the manager
// is not changed.
#ifndef TURBOQUANT_CACHE_KV_CACHE_MANAGER_H_
#define TURBOQUANT_CACHE_KV_CACHE_MANAGER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "cache/block_pool.h"
#include "codec/kv_cache_spec.h"

namespace turboquant {

struct SequenceId {
  int32_t value = -1;
  auto operator<=>(const SequenceId&) const = default;
};

inline constexpr int kMaxBlocks =
    1 << 24;  // bookkeeping is about 40 bytes per block of the pool, used or not

struct KvCacheConfig {
  std::vector<KvCacheSpec>
      layers;  // same block_size, num_kv_heads and head_dim may differ by layer
  std::vector<KvStaticScales>
      static_scales;   // one per layer, or empty where no layer has a static granularity
  int num_blocks = 0;  // 1..kMaxBlocks
  int max_num_seqs = 1;
  int num_sink_tokens =
      4;  // 0..16; without effect on layers whose closed blocks are exact (f32, f16)
  // Tokens of the newest closed blocks that are kept in int8 too, a multiple of the block size;
  // without effect on layers that have no RecentSpec.
  int num_recent_tokens = 0;
};

// Format of tails and sinks of a layer: f32 if K or V is stored as f32, else f16.
KvCacheSpec ExactSpec(const KvCacheSpec& spec, int num_tokens);
inline constexpr int kSinkTileTokens =
    16;  // slots in a sink tile; num_sink_tokens of them are used

// Format of the copies of recent blocks: int8, behind the rotation that the layer's codes have.
// Nothing where K and V have 8 bits or more, or static scales.
std::optional<KvCacheSpec> RecentSpec(const KvCacheSpec& spec);

// Bytes of one sequence's tails, sink tiles and copies of recent blocks over all layers.
size_t BytesPerSequence(const KvCacheConfig& config);

// What kernels and attention see of one sequence in one layer. Borrowed: valid until the manager
// changes.
struct PagedKvView {
  const KvCacheSpec* spec;
  const KvBlockLayout* layout;
  const KvStaticScales* static_scales;  // never null; vectors empty where there are none
  uint8_t* arena;                       // block b at arena + b * bytes_per_block
  size_t bytes_per_block;
  std::span<const BlockId> blocks;  // closed blocks, and those that this step will close
  const KvCacheSpec* tail_spec;     // exact, block_size tokens
  const KvBlockLayout* tail_layout;
  uint8_t* tail;
  const KvCacheSpec* sink_spec;  // exact, kSinkTileTokens tokens
  const KvBlockLayout* sink_layout;
  uint8_t* sinks;                 // null if this layer keeps no exact sinks
  int num_sink_tokens;            // 0 where sinks is null
  size_t bytes_per_recent_block;  // 0 where there are none
  uint8_t* recent;                // [recent_blocks] copies; null where there are none
  int recent_blocks;              // 0 where recent is null
  uint8_t* Block(size_t index) const {
    return arena + static_cast<size_t>(blocks[index].value) * bytes_per_block;
  }
  uint8_t* RecentBlock(size_t index) const {
    return recent + index % static_cast<size_t>(recent_blocks) * bytes_per_recent_block;
  }
};

struct KvCacheStats {
  size_t block_bytes_used = 0;  // blocks in use x sum over layers of BytesPerBlock
  size_t block_bytes_committed =
      0;  // most blocks ever in use x the same: what the arenas touch, but for page ends
  size_t block_bytes_reserved = 0;  // num_blocks x sum of BytesPerBlock: the pool
  size_t sequence_bytes_used = 0;   // tails, sinks and recent copies of live sequences
  size_t sequence_bytes_reserved = 0;
  int num_blocks = 0, num_free_blocks = 0, num_sequences = 0;
  int64_t num_tokens = 0;  // over live sequences, shared ones counted once per sequence
};

class KvCacheManager {
 public:
  // kInvalidArgument for a bad config, kOutOfMemory when the address space cannot be had.
  static Result<std::unique_ptr<KvCacheManager>> Create(KvCacheConfig config);
  ~KvCacheManager();
  KvCacheManager(const KvCacheManager&) = delete;
  KvCacheManager& operator=(const KvCacheManager&) = delete;

  // A new empty sequence, or nothing when max_num_seqs are alive.
  std::optional<SequenceId> AddSequence();
  // Reserves what the next num_tokens > 0 tokens of the sequence need: the blocks that they will
  // close, floor((tokens + num_tokens) / block_size) - floor(tokens / block_size). False when the
  // pool, or the system when it is asked for the pages, cannot give that: nothing has changed then.
  // At most one reservation is open per sequence.
  bool AllocateSlots(SequenceId id, int num_tokens);
  // The reserved tokens have been written by StoreKv in every layer: they now belong to the
  // sequence.
  void Commit(SequenceId id);
  // A copy that shares all closed blocks and the sinks; the tail and recent copies are copied, and
  // the sinks too while they are not all written. Nothing when max_num_seqs are alive. The parent
  // must have no open reservation.
  std::optional<SequenceId> Fork(SequenceId parent);
  // Ends a sequence and its open reservation, if any.
  void Free(SequenceId id);

  int NumTokens(SequenceId id) const;          // committed
  int NumReservedTokens(SequenceId id) const;  // by an open AllocateSlots
  int NumFreeBlocks() const;
  // Blocks that AllocateSlots(id, num_tokens) would take.
  int NumBlocksNeeded(SequenceId id, int num_tokens) const;
  PagedKvView View(int layer, SequenceId id) const;
  const KvCacheConfig& config() const;
  int block_size() const;
  KvCacheStats Stats() const;
  // Bytes of one block over all layers; of what one sequence holds of its own.
  size_t BytesPerBlockAllLayers() const;
  size_t BytesPerSequence() const;  // the same as the function above

 private:
  struct Impl;
  explicit KvCacheManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_CACHE_KV_CACHE_MANAGER_H_
