#include "cache/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace turboquant {

BlockPool::BlockPool(int num_blocks) {
  CHECK_GE(num_blocks, 0);
  blocks_.resize(static_cast<size_t>(num_blocks));
  free_.reserve(blocks_.size());
  // Lowest id on top of the stack; a freed block goes on top again, so a fresh id is taken only
  // when no used one is free.
  for (int32_t id = num_blocks - 1; id >= 0; --id) free_.push_back(BlockId{id});
}

std::optional<BlockId> BlockPool::Allocate() {
  if (free_.empty()) return std::nullopt;
  const BlockId id = free_.back();
  free_.pop_back();
  Block& block = blocks_[static_cast<size_t>(id.value)];
  CHECK_EQ(block.ref_count, 0);
  block.ref_count = 1;
  peak_used_ = std::max(peak_used_, num_blocks() - num_free());
  return id;
}

void BlockPool::AddRef(BlockId id) {
  Block& block = Mutable(id);
  CHECK_GT(block.ref_count, 0);
  ++block.ref_count;
}

bool BlockPool::Release(BlockId id) {
  Block& block = Mutable(id);
  CHECK_GT(block.ref_count, 0);
  if (--block.ref_count > 0) return false;
  block.hash.reset();
  free_.push_back(id);
  return true;
}

const Block& BlockPool::at(BlockId id) const {
  CHECK_GE(id.value, 0);
  CHECK_LT(id.value, num_blocks());
  return blocks_[static_cast<size_t>(id.value)];
}

void BlockPool::SetHash(BlockId id, const BlockHash& hash) {
  Block& block = Mutable(id);
  CHECK_GT(block.ref_count, 0);
  block.hash = hash;
}

Block& BlockPool::Mutable(BlockId id) { return const_cast<Block&>(at(id)); }

}  // namespace turboquant
