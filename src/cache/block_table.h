// Page map of one sequence: block i holds its tokens [i * block_size, (i + 1) * block_size). Tokens
// after the last closed block are in the tail and have no block yet; a block is reserved for them
// only with the tokens that will close it. Owns no references: KvCacheManager takes and drops them.
// Not thread-safe.
#ifndef TURBOQUANT_CACHE_BLOCK_TABLE_H_
#define TURBOQUANT_CACHE_BLOCK_TABLE_H_

#include <span>
#include <vector>

#include "cache/block_pool.h"

namespace turboquant {

class BlockTable {
 public:
  explicit BlockTable(int block_size);

  int num_tokens() const { return num_tokens_; }      // committed
  int num_reserved() const { return num_reserved_; }  // tokens of the open reservation
  int num_closed_blocks() const { return num_tokens_ / block_size_; }
  int num_tail_tokens() const { return num_tokens_ % block_size_; }
  // Closed blocks, then those that the reserved tokens will close.
  std::span<const BlockId> blocks() const { return blocks_; }

  // Blocks that the next num_tokens tokens will close.
  int BlocksToClose(int num_tokens) const;
  // Opens a reservation; new_blocks has BlocksToClose(num_tokens) ids.
  void Reserve(int num_tokens, std::span<const BlockId> new_blocks);
  void Commit();

 private:
  int block_size_;
  int num_tokens_ = 0;
  int num_reserved_ = 0;
  std::vector<BlockId> blocks_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_CACHE_BLOCK_TABLE_H_
