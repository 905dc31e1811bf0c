#include "attention/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace turboquant {
namespace {

constexpr int kBlock = 64;

SequenceChunk Chunk(int start, int num_tokens, int first_row = 0) {
  return {.sequence = {0}, .start = start, .num_tokens = num_tokens, .first_row = first_row};
}

TEST(StorePlanTest, ChunkInsideTheTailsBlockNeedsNoStaging) {
  StorePlan plan(kBlock, {.max_batch_tokens = 128, .max_num_seqs = 2});
  plan.Build(std::vector{Chunk(64, 64), Chunk(10, 1)});
  ASSERT_EQ(plan.units().size(), 2u);
  for (const StoreUnit& unit : plan.units()) EXPECT_EQ(unit.tail_block, kNoBlock);
  EXPECT_EQ(plan.StagingTile(0, 1), -1);
  EXPECT_EQ(plan.StagingTile(1, 0), -1);
}

TEST(StorePlanTest, FirstAndLastBlockOfALongChunkShareAUnit) {
  StorePlan plan(kBlock, {.max_batch_tokens = 256, .max_num_seqs = 2});
  plan.Build(std::vector{Chunk(63, 2), Chunk(100, 200)});
  ASSERT_EQ(plan.units().size(), 1u + 3u);
  EXPECT_EQ(plan.units()[0].block, 0);
  EXPECT_EQ(plan.units()[0].tail_block, 1);
  EXPECT_EQ(plan.units()[1].block, 1);
  EXPECT_EQ(plan.units()[1].tail_block, 4);
  EXPECT_EQ(plan.units()[2].block, 2);
  EXPECT_EQ(plan.units()[3].block, 3);
  EXPECT_EQ(plan.StagingTile(0, 0), 0);
  EXPECT_EQ(plan.StagingTile(0, 1), -1);
  EXPECT_EQ(plan.StagingTile(1, 1), 1);
  EXPECT_EQ(plan.StagingTile(1, 3), 3);
  EXPECT_EQ(plan.StagingTile(1, 4), -1);
}

TEST(StorePlanTest, StagingBoundIsReachedAndNeverExceeded) {
  const AttentionLimits limits = {.max_batch_tokens = 200, .max_num_seqs = 3};
  StorePlan plan(kBlock, limits);
  // Two chunks of two tokens across a block end, one long one just before a block end.
  plan.Build(std::vector{Chunk(63, 2), Chunk(63, 2), Chunk(63, 196)});
  EXPECT_EQ(plan.StagingTile(2, 3) + 1, plan.max_staging_tiles());
  std::mt19937 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<SequenceChunk> chunks;
    int left = limits.max_batch_tokens;
    for (int i = 0; i < 3 && left > 0; ++i) {
      const int tokens = std::uniform_int_distribution(1, left)(random);
      chunks.push_back(Chunk(std::uniform_int_distribution(0, 300)(random), tokens));
      left -= tokens;
    }
    plan.Build(chunks);  // CHECKs the bound
  }
}

using Work = std::set<std::tuple<int, int, int>>;  // tile, head, part

// What the units work on, each once.
void CollectWork(const AttendPlan& plan, Work* work) {
  const LayerShape& shape = plan.shape();
  for (const AttendUnit& unit : plan.units()) {
    std::vector<int> members = {unit.tile};
    if (unit.num_members > 1) {
      const auto shared = plan.members().subspan(static_cast<size_t>(unit.first_member),
                                                 static_cast<size_t>(unit.num_members));
      members.assign(shared.begin(), shared.end());
      ASSERT_EQ(members.front(), unit.tile);
    }
    ASSERT_LT(unit.head_begin, unit.head_end);
    size_t rows = 0;
    for (const int member : members) {
      const QueryTile& tile = plan.tiles()[static_cast<size_t>(member)];
      ASSERT_EQ(unit.split == AttendUnit::kWholeTile, tile.partial_row < 0);
      rows += static_cast<size_t>((unit.head_end - unit.head_begin) * tile.num_queries *
                                  shape.HeadsPerGroup());
      for (int head = unit.head_begin; head < unit.head_end; ++head) {
        ASSERT_TRUE(work->insert({member, head, unit.split}).second);
      }
    }
    ASSERT_LE(rows, plan.max_unit_rows());
  }
}

// Every (query, head, split) of every chunk is worked on by exactly one unit, and stored states
// neither overlap nor leave their memory.
void ExpectCoversAll(const AttendPlan& plan, std::span<const SequenceChunk> chunks,
                     int block_size) {
  const LayerShape& shape = plan.shape();
  std::set<std::pair<int, int>> queries;
  for (const QueryTile& tile : plan.tiles()) {
    const SequenceChunk& chunk = chunks[static_cast<size_t>(tile.chunk)];
    ASSERT_GT(tile.num_queries, 0);
    ASSERT_EQ(tile.first_position, chunk.start + tile.first_query);
    ASSERT_EQ(tile.first_position / block_size, tile.own_block);
    ASSERT_EQ((tile.first_position + tile.num_queries - 1) / block_size, tile.own_block);
    ASSERT_LE(tile.num_queries * std::min(shape.HeadsPerGroup(), kMaxTileRows), kMaxTileRows);
    for (int i = 0; i < tile.num_queries; ++i)
      ASSERT_TRUE(queries.insert({tile.chunk, tile.first_query + i}).second);
    const int seen =
        shape.sliding_window > 0 ? std::max(0, tile.first_position - shape.sliding_window + 1) : 0;
    ASSERT_EQ(tile.first_block, seen / block_size);
    const int per_split = plan.blocks_per_split();
    std::set<int> splits;
    for (int block = tile.first_block; block < tile.own_block; ++block)
      splits.insert(block / per_split);
    ASSERT_EQ(tile.num_splits, static_cast<int>(splits.size()));
    if (!splits.empty()) {
      ASSERT_EQ(tile.first_split, *splits.begin());
    }
  }
  size_t num_queries = 0;
  for (const SequenceChunk& chunk : chunks) num_queries += static_cast<size_t>(chunk.num_tokens);
  ASSERT_EQ(queries.size(), num_queries);

  Work work;
  ASSERT_NO_FATAL_FAILURE(CollectWork(plan, &work));
  size_t expected_work = 0;
  std::map<std::ptrdiff_t, std::ptrdiff_t> partial_rows;  // begin -> end
  for (size_t i = 0; i < plan.tiles().size(); ++i) {
    const QueryTile& tile = plan.tiles()[i];
    const int parts = tile.partial_row < 0 ? 1 : tile.num_splits + 1;
    expected_work += static_cast<size_t>(parts * shape.num_kv_heads);
    if (tile.partial_row < 0) continue;
    ASSERT_EQ(std::ranges::count(plan.merge_tiles(), static_cast<int>(i)), 1);
    partial_rows[tile.partial_row] = tile.partial_row + parts * tile.num_queries * shape.num_heads;
  }
  ASSERT_EQ(work.size(), expected_work);
  ASSERT_EQ(plan.merge_tiles().size(), partial_rows.size());
  std::ptrdiff_t end = 0;
  for (const auto& [begin, row_end] : partial_rows) {
    ASSERT_GE(begin, end);
    end = row_end;
  }
  ASSERT_LE(static_cast<size_t>(end), plan.max_partial_rows());
}

TEST(AttendPlanTest, RandomStepsAreCoveredExactlyOnceWithinReservedMemory) {
  std::mt19937 random(7);
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    const LayerShape shape = {.num_heads = 0,
                              .num_kv_heads = uniform(1, 9),
                              .head_dim = 64,
                              .sliding_window = uniform(0, 2) == 0 ? uniform(1, 3000) : 0};
    LayerShape grouped = shape;
    grouped.num_heads =
        shape.num_kv_heads * std::vector{1, 3, 4, 8, 40}[static_cast<size_t>(uniform(0, 4))];
    const int block_size = 16 << uniform(0, 4);
    const AttentionLimits limits = {.max_batch_tokens = 300,
                                    .max_num_seqs = 6,
                                    .max_context = 20000,
                                    .max_threads = uniform(1, 8)};
    AttendPlan plan(grouped, block_size, limits);
    const size_t reserved = plan.reserved_bytes();
    for (int step = 0; step < 10; ++step) {
      std::vector<SequenceChunk> chunks;
      int left = limits.max_batch_tokens;
      for (int i = uniform(1, 6); i > 0 && left > 0; --i) {
        const int tokens = uniform(0, 2) == 0 ? uniform(1, left) : uniform(1, std::min(left, 8));
        chunks.push_back(Chunk(uniform(0, 20000 - tokens), tokens, limits.max_batch_tokens - left));
        left -= tokens;
      }
      // Sequences with a common beginning: ids are those of a trunk until somewhere, then own ones.
      std::vector<std::vector<BlockId>> ids(chunks.size());
      std::vector<BlockTable> tables;
      for (size_t c = 0; c < chunks.size(); ++c) {
        const int common = uniform(0, 20000 / block_size);
        for (int b = 0; b <= 20000 / block_size; ++b) {
          ids[c].push_back({b < common ? b : 100000 * (static_cast<int>(c) + 1) + b});
        }
        tables.emplace_back(ids[c]);
      }
      plan.Build(chunks, tables);
      ASSERT_EQ(plan.reserved_bytes(), reserved);
      ASSERT_NO_FATAL_FAILURE(ExpectCoversAll(plan, chunks, block_size));
    }
  }
}

constexpr LayerShape kSmallModel = {
    .num_heads = 9, .num_kv_heads = 3, .head_dim = 64, .sliding_window = 0};

TEST(AttendPlanTest, OneThreadKeepsNothingForAMerge) {
  AttendPlan plan(kSmallModel, kBlock, {.max_context = 10000, .max_threads = 1});
  EXPECT_EQ(plan.max_partial_rows(), 0u);
  plan.Build(std::vector{Chunk(8191, 1)});
  EXPECT_TRUE(plan.merge_tiles().empty());
  ASSERT_EQ(plan.units().size(), 1u);
}

TEST(AttendPlanTest, ALoneDecodeIsSplitByKeys) {
  AttendPlan plan(kSmallModel, kBlock, {.max_context = 10000, .max_threads = 2});
  plan.Build(std::vector{Chunk(8191, 1)});
  EXPECT_EQ(plan.tiles()[0].num_splits, 16);
  EXPECT_EQ(plan.units().size(), 17u);  // every split, and the exact tile; all heads together
  EXPECT_EQ(plan.merge_tiles().size(), 1u);
}

TEST(AttendPlanTest, OnlyTheLongOneOfManySequencesIsSplit) {
  AttendPlan plan(kSmallModel, kBlock,
                  {.max_num_seqs = 40, .max_context = 40000, .max_threads = 2});
  std::vector<SequenceChunk> chunks = {Chunk(39000, 1)};
  for (int i = 1; i < 40; ++i) chunks.push_back(Chunk(200, 1, i));
  plan.Build(chunks);
  EXPECT_EQ(std::vector(plan.merge_tiles().begin(), plan.merge_tiles().end()), std::vector{0});
}

TEST(AttendPlanTest, EqualSequencesEnoughForAllThreadsAreNotSplit) {
  AttendPlan plan(kSmallModel, kBlock, {.max_num_seqs = 8, .max_context = 10000, .max_threads = 2});
  std::vector<SequenceChunk> chunks;
  for (int i = 0; i < 8; ++i) chunks.push_back(Chunk(8191, 1, i));
  plan.Build(chunks);
  EXPECT_TRUE(plan.merge_tiles().empty());
  EXPECT_EQ(plan.units().size(), 8u);
}

TEST(AttendPlanTest, ACommonPrefixIsReadOnce) {
  for (const int num_threads : {1, 2}) {
    AttendPlan plan(kSmallModel, kBlock,
                    {.max_num_seqs = 8, .max_context = 10000, .max_threads = num_threads});
    constexpr int kShared = 4096 + 100;  // eight splits, and a part of one that each reads alone
    std::vector<SequenceChunk> chunks;
    std::vector<std::vector<BlockId>> ids(8);
    std::vector<BlockTable> tables;
    for (int i = 0; i < 8; ++i) {
      chunks.push_back(Chunk(kShared + 64 * i, 1, i));
      for (int b = 0; b < 80; ++b) {
        ids[static_cast<size_t>(i)].push_back({b < kShared / kBlock ? b : 1000 * (i + 1) + b});
      }
      tables.emplace_back(ids[static_cast<size_t>(i)]);
    }
    plan.Build(chunks, tables);
    EXPECT_EQ(std::ranges::count(plan.units(), 8, &AttendUnit::num_members), 8);
    EXPECT_EQ(plan.members().size(), 8u);
    EXPECT_EQ(plan.merge_tiles().size(), 8u);
    for (const QueryTile& tile : plan.tiles()) EXPECT_EQ(tile.num_shared_splits, 8);
    ExpectCoversAll(plan, chunks, kBlock);
  }
}

TEST(AttendPlanTest, PrefillIsCutByQueryTileAndHead) {
  AttendPlan plan(kSmallModel, kBlock, {.max_context = 10000, .max_threads = 2});
  plan.Build(std::vector{Chunk(1024, 512)});
  EXPECT_TRUE(plan.merge_tiles().empty());
  EXPECT_EQ(plan.tiles().size(), 8u * 7u);  // 64 queries of a block in tiles of ten
  for (const AttendUnit& unit : plan.units()) {
    const QueryTile& tile = plan.tiles()[static_cast<size_t>(unit.tile)];
    EXPECT_EQ(unit.head_end - unit.head_begin, tile.num_queries > 8 ? 1 : 3);
  }
}

}  // namespace
}  // namespace turboquant
