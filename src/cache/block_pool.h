// Block ids, their reference counts and the free list. No bytes here: arenas are in
// kv_cache_manager.h. Not thread-safe: used by the engine's step loop only.
#ifndef TURBOQUANT_CACHE_BLOCK_POOL_H_
#define TURBOQUANT_CACHE_BLOCK_POOL_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace turboquant {

// Strong integer: index of a block in every layer's arena.
struct BlockId {
  int32_t value = -1;
  auto operator<=>(const BlockId&) const = default;
};

// Identity of a block's content for prefix sharing (cache/block_hash.h): hash over the parent's
// hash, the tokens of the block, the specs and the calibration id.
struct BlockHash {
  uint64_t low = 0, high = 0;
  bool operator==(const BlockHash&) const = default;
};

struct Block {
  int32_t ref_count = 0;
  std::optional<BlockHash> hash;  // set once the block is closed and may be shared
};

class BlockPool {
 public:
  explicit BlockPool(int num_blocks);

  int num_blocks() const { return static_cast<int>(blocks_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  // Highest number of blocks ever in use at once.
  int peak_used() const { return peak_used_; }

  // A block with ref_count 1, or nothing when the pool is exhausted. The block freed last, else the
  // lowest id that was never used: arenas grow densely and only as far as the most blocks ever in
  // use.
  std::optional<BlockId> Allocate();
  void AddRef(BlockId id);
  // Drops one reference; true when that freed the block.
  bool Release(BlockId id);

  const Block& at(BlockId id) const;
  void SetHash(BlockId id, const BlockHash& hash);

 private:
  Block& Mutable(BlockId id);

  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // stack
  int peak_used_ = 0;
};

}  // namespace turboquant

#endif  // TURBOQUANT_CACHE_BLOCK_POOL_H_
