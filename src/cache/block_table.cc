#include "cache/block_table.h"

#include "base/check.h"

namespace turboquant {

BlockTable::BlockTable(int block_size) : block_size_(block_size) { CHECK_GT(block_size, 0); }

int BlockTable::BlocksToClose(int num_tokens) const {
  CHECK_GE(num_tokens, 0);
  return (num_tail_tokens() + num_tokens) / block_size_;
}

void BlockTable::Reserve(int num_tokens, std::span<const BlockId> new_blocks) {
  CHECK_EQ(num_reserved_, 0);
  CHECK_GT(num_tokens, 0);
  CHECK_EQ(new_blocks.size(), static_cast<size_t>(BlocksToClose(num_tokens)));
  blocks_.insert(blocks_.end(), new_blocks.begin(), new_blocks.end());
  num_reserved_ = num_tokens;
}

void BlockTable::Commit() {
  CHECK_GT(num_reserved_, 0);
  num_tokens_ += num_reserved_;
  num_reserved_ = 0;
}

}  // namespace turboquant
