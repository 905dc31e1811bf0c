#include "cache/block_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace turboquant {
namespace {

std::vector<BlockId> Ids(int first, int count) {
  std::vector<BlockId> ids;
  for (int i = 0; i < count; ++i) ids.push_back(BlockId{first + i});
  return ids;
}

TEST(BlockTable, ReservesTheBlocksThatNewTokensClose) {
  BlockTable table(16);
  EXPECT_EQ(table.BlocksToClose(0), 0);
  EXPECT_EQ(table.BlocksToClose(15), 0);
  EXPECT_EQ(table.BlocksToClose(16), 1);
  EXPECT_EQ(table.BlocksToClose(47), 2);
  table.Reserve(15, {});
  EXPECT_EQ(table.num_reserved(), 15);
  EXPECT_EQ(table.num_tokens(), 0);
  table.Commit();
  EXPECT_EQ(table.num_tokens(), 15);
  EXPECT_EQ(table.num_tail_tokens(), 15);
  EXPECT_EQ(table.BlocksToClose(1), 1);
  EXPECT_EQ(table.BlocksToClose(16), 1);
  EXPECT_EQ(table.BlocksToClose(17), 2);
}

TEST(BlockTable, ShowsReservedBlocksAfterClosedOnes) {
  BlockTable table(16);
  table.Reserve(33, Ids(5, 2));
  EXPECT_EQ(table.num_closed_blocks(), 0);
  ASSERT_EQ(table.blocks().size(), 2u);
  table.Commit();
  EXPECT_EQ(table.num_closed_blocks(), 2);
  EXPECT_EQ(table.num_tail_tokens(), 1);
  table.Reserve(15, Ids(9, 1));
  EXPECT_EQ(table.num_closed_blocks(), 2);
  ASSERT_EQ(table.blocks().size(), 3u);
  EXPECT_EQ(table.blocks()[0].value, 5);
  EXPECT_EQ(table.blocks()[2].value, 9);
  table.Commit();
  EXPECT_EQ(table.num_closed_blocks(), 3);
  EXPECT_EQ(table.num_tail_tokens(), 0);
}

TEST(BlockTableDeathTest, RefusesMisuse) {
  BlockTable table(16);
  EXPECT_DEATH(table.Commit(), "num_reserved_");
  EXPECT_DEATH(table.Reserve(0, {}), "num_tokens");
  EXPECT_DEATH(table.Reserve(16, {}), "new_blocks");
  table.Reserve(1, {});
  EXPECT_DEATH(table.Reserve(1, {}), "num_reserved_");
}

}  // namespace
}  // namespace turboquant
