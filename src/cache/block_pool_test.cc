#include "cache/block_pool.h"

#include <gtest/gtest.h>

namespace turboquant {
namespace {

TEST(BlockPool, HandsOutDenselyAndReusesBeforeGrowing) {
  BlockPool pool(4);
  EXPECT_EQ(pool.num_free(), 4);
  const BlockId a = *pool.Allocate();
  const BlockId b = *pool.Allocate();
  EXPECT_EQ(a.value, 0);
  EXPECT_EQ(b.value, 1);
  EXPECT_TRUE(pool.Release(a));
  EXPECT_EQ(pool.Allocate()->value, 0);
  EXPECT_EQ(pool.Allocate()->value, 2);
  EXPECT_EQ(pool.peak_used(), 3);
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, ExhaustionIsAnAnswer) {
  BlockPool pool(2);
  const BlockId a = *pool.Allocate();
  ASSERT_TRUE(pool.Allocate());
  EXPECT_FALSE(pool.Allocate());
  pool.Release(a);
  EXPECT_EQ(pool.Allocate(), a);
  EXPECT_FALSE(BlockPool(0).Allocate());
}

TEST(BlockPool, IsFreeOnceTheLastReferenceIsGone) {
  BlockPool pool(1);
  const BlockId a = *pool.Allocate();
  pool.AddRef(a);
  EXPECT_EQ(pool.at(a).ref_count, 2);
  EXPECT_FALSE(pool.Release(a));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_TRUE(pool.Release(a));
  EXPECT_EQ(pool.num_free(), 1);
}

TEST(BlockPool, HashLivesAsLongAsTheBlock) {
  BlockPool pool(1);
  const BlockId a = *pool.Allocate();
  EXPECT_FALSE(pool.at(a).hash);
  pool.SetHash(a, {.low = 1, .high = 2});
  EXPECT_EQ(pool.at(a).hash, (BlockHash{.low = 1, .high = 2}));
  pool.Release(a);
  pool.Allocate();
  EXPECT_FALSE(pool.at(a).hash);
}

TEST(BlockPoolDeathTest, RefusesMisuse) {
  BlockPool pool(2);
  const BlockId a = *pool.Allocate();
  pool.Release(a);
  EXPECT_DEATH(pool.Release(a), "ref_count");
  EXPECT_DEATH(pool.AddRef(a), "ref_count");
  EXPECT_DEATH(pool.at(BlockId{2}), "num_blocks");
  EXPECT_DEATH(pool.at(BlockId{}), "id.value");
}

}  // namespace
}  // namespace turboquant
