// Block ids, their reference counts and the free list. No bytes here: arenas are in kv_cache_manager.h.
// Not thread-safe: used by the engine's step loop only.
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

// Identity of a block's content for prefix sharing: hash over (parent hash, tokens of the block, spec and calibration id).
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

  // A block with ref_count 1, or nothing when the pool is exhausted. Lowest never-used id first, so arenas grow densely.
  std::optional<BlockId> Allocate();
  void AddRef(BlockId id);
  // Drops one reference; true when that freed the block.
  bool Release(BlockId id);

  const Block& at(BlockId id) const;
  void SetHash(BlockId id, const BlockHash& hash);

 private:
  std::vector<Block> blocks_;
  std::vector<BlockId> free_;  // stack
  int peak_used_ = 0;
};

}  // namespace turboquant

#endif  // TURBOQUANT_CACHE_BLOCK_POOL_H_
