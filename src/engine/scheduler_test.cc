#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace turboquant {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kBlockSize = 16;

std::unique_ptr<KvCacheManager> MakeCache(int num_blocks, int max_num_seqs) {
  KvCacheSpec spec;
  spec.num_kv_heads = 1;
  spec.head_dim = 16;
  spec.block_size = kBlockSize;
  auto cache = KvCacheManager::Create({.layers = {spec},
                                       .static_scales = {},
                                       .num_blocks = num_blocks,
                                       .max_num_seqs = max_num_seqs});
  EXPECT_TRUE(cache) << cache.error().message;
  return std::move(*cache);
}

struct Chunk {
  int64_t request;
  int start, num_tokens;
  bool reaches_end;
  bool operator==(const Chunk&) const = default;
};
std::ostream& operator<<(std::ostream& os, const Chunk& chunk) {
  return os << "{" << chunk.request << ", " << chunk.start << ", " << chunk.num_tokens << ", "
            << chunk.reaches_end << "}";
}

// A scheduler with a cache, and a model that computes at once and generates a token wherever it
// can.
class Loop {
 public:
  Loop(int num_blocks, int max_num_seqs, int budget)
      : cache(MakeCache(num_blocks, max_num_seqs)), scheduler(cache.get(), budget) {}

  RequestId Add(int num_tokens, std::optional<RequestId> continue_from = {}) {
    scheduler.Add(RequestId{next_id}, num_tokens, continue_from);
    return RequestId{next_id++};
  }
  std::vector<Chunk> Step() {
    const SchedulerOutput output = scheduler.Schedule();
    preempted = output.preempted;
    std::vector<Chunk> chunks;
    for (const ScheduledChunk& chunk : output.chunks) {
      EXPECT_EQ(cache->NumTokens(chunk.sequence), chunk.start);
      EXPECT_EQ(cache->NumReservedTokens(chunk.sequence), chunk.num_tokens);
      cache->Commit(chunk.sequence);
      if (chunk.reaches_end) scheduler.AppendToken(chunk.request);
      chunks.push_back({chunk.request.value, chunk.start, chunk.num_tokens, chunk.reaches_end});
    }
    return chunks;
  }

  std::unique_ptr<KvCacheManager> cache;
  Scheduler scheduler;
  std::vector<RequestId> preempted;
  int64_t next_id = 0;
};

TEST(Scheduler, ChunksAPromptByTheBudget) {
  Loop loop(10, 1, 32);
  loop.Add(70);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 0, 32, false}));
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 32, 32, false}));
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 64, 6, true}));
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 70, 1, true}));
}

TEST(Scheduler, DecodesFirstThenPromptsOldestFirst) {
  Loop loop(20, 3, 32);
  loop.Add(30);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 0, 30, true}));
  loop.Add(40);
  loop.Add(20);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 30, 1, true}, Chunk{1, 0, 31, false}));
  EXPECT_THAT(loop.Step(),
              ElementsAre(Chunk{0, 31, 1, true}, Chunk{1, 31, 9, true}, Chunk{2, 0, 20, true}));
  EXPECT_THAT(loop.Step(),
              ElementsAre(Chunk{0, 32, 1, true}, Chunk{1, 40, 1, true}, Chunk{2, 20, 1, true}));
}

TEST(Scheduler, NobodyOvertakesAWaitingRequest) {
  Loop loop(4, 3, 64);
  loop.Add(40);  // 2 blocks
  loop.Step();
  loop.Add(48);  // 3 blocks: no room
  loop.Add(5);   // would fit
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 40, 1, true}));
  EXPECT_EQ(loop.scheduler.num_waiting(), 2);
  loop.scheduler.Finish(RequestId{0}, false);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{1, 0, 48, true}, Chunk{2, 0, 5, true}));
}

TEST(Scheduler, AdmissionLeavesABlockForEveryRunningSequence) {
  Loop loop(4, 3, 64);
  loop.Add(30);  // 1 block
  loop.Step();
  loop.Add(47);  // 2 blocks; the 4th is left for request 0
  EXPECT_EQ(loop.Step().size(), 2u);
  Loop tight(3, 3, 64);
  tight.Add(30);
  tight.Step();
  tight.Add(47);
  EXPECT_EQ(tight.Step().size(), 1u);
}

// An admitted prompt that is still being computed has its blocks spoken for.
TEST(Scheduler, AdmissionCountsWhatAdmittedPromptsStillLack) {
  Loop loop(8, 3, 20);
  loop.Add(100);  // 6 blocks, one reserved in the first step
  loop.Step();
  loop.Add(17);  // 1 block + 1 for the other: fits
  loop.Add(17);
  for (int i = 0; i < 4; ++i) loop.Step();
  EXPECT_EQ(loop.scheduler.num_running(), 1);  // the budget went to the first prompt
  loop.Step();
  EXPECT_EQ(loop.scheduler.num_running(), 2);
  EXPECT_EQ(loop.scheduler.num_waiting(), 1);
}

TEST(Scheduler, MaxNumSeqsLimitsAdmission) {
  Loop loop(20, 2, 64);
  for (int i = 0; i < 3; ++i) loop.Add(4);
  EXPECT_EQ(loop.Step().size(), 2u);
  loop.scheduler.Finish(RequestId{0}, false);
  EXPECT_EQ(loop.Step().size(), 2u);
  EXPECT_EQ(loop.scheduler.num_waiting(), 0);
}

TEST(Scheduler, OutOfBlocksPreemptsTheYoungestAndResumesIt) {
  Loop loop(4, 2, 64);
  loop.Add(30);
  loop.Add(30);
  EXPECT_EQ(loop.Step().size(), 2u);
  // Both cross 32 in the next steps and 48 later: 4 blocks are full then, both need a 5th and 6th.
  for (int i = 0; i < 17; ++i) {
    EXPECT_EQ(loop.Step().size(), 2u) << i;
    EXPECT_THAT(loop.preempted, IsEmpty());
  }
  EXPECT_EQ(loop.cache->NumFreeBlocks(), 0);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 47, 1, true}));
  EXPECT_THAT(loop.preempted, ElementsAre(RequestId{1}));
  EXPECT_FALSE(loop.scheduler.SequenceOf(RequestId{1}));
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 48, 1, true}));  // no room for 48 tokens beside it
  loop.scheduler.Finish(RequestId{0}, false);
  // Computed again with what it had generated: 30 + 18 tokens.
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{1, 0, 48, true}));
}

// The younger one asks first: it sits out, and the older one takes its blocks only when it needs
// them itself.
TEST(Scheduler, TheYoungestSitsOutRatherThanPreemptItself) {
  Loop loop(3, 2, 64);
  loop.Add(17);
  loop.Add(31);
  EXPECT_EQ(loop.Step().size(), 2u);
  EXPECT_EQ(loop.Step().size(), 2u);  // request 1 closes its second block: the pool is full
  for (int i = 0; i < 13; ++i) EXPECT_EQ(loop.Step().size(), 2u);
  // Request 0 has 31 tokens and needs its second block.
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 31, 1, true}));
  EXPECT_THAT(loop.preempted, ElementsAre(RequestId{1}));
}

TEST(Scheduler, AChunkShrinksToTheFreeBlocks) {
  Loop loop(4, 2, 64);
  loop.Add(15);
  loop.Step();
  loop.Add(33);  // 2 blocks, and one for the other
  loop.scheduler.AppendToken(RequestId{0});
  EXPECT_EQ(loop.Step().size(), 2u);
  // Alone in the pool, a long prompt runs on while blocks last, then waits for no one but itself.
  Loop alone(2, 1, 64);
  alone.Add(60);
  EXPECT_THAT(alone.Step(), ElementsAre(Chunk{0, 0, 47, false}));
  EXPECT_THAT(alone.Step(), IsEmpty());
}

TEST(Scheduler, PreemptionTakesBackWhatThisStepHadGiven) {
  Loop loop(5, 2, 40);
  loop.Add(64);  // 4 blocks, in two steps
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 0, 40, false}));
  loop.Add(15);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 40, 24, true}, Chunk{1, 0, 15, true}));
  EXPECT_THAT(loop.Step(),
              ElementsAre(Chunk{0, 64, 1, true}, Chunk{1, 15, 1, true}));  // the 5th block
  for (int i = 0; i < 14; ++i) EXPECT_EQ(loop.Step().size(), 2u) << i;
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{0, 79, 1, true}));
  EXPECT_THAT(loop.preempted, ElementsAre(RequestId{1}));
}

TEST(Scheduler, KeptCacheIsContinued) {
  Loop loop(8, 1, 64);
  const RequestId first = loop.Add(20);
  loop.Step();
  loop.scheduler.Finish(first, true);
  EXPECT_EQ(loop.scheduler.num_kept(), 1);
  EXPECT_TRUE(loop.scheduler.IsKept(first));
  loop.Add(50, first);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{1, 20, 30, true}));
  EXPECT_EQ(loop.scheduler.num_kept(), 0);
}

TEST(Scheduler, KeptCachesYieldToRequests) {
  Loop loop(4, 3, 64);
  for (int i = 0; i < 2; ++i) {
    const RequestId id = loop.Add(20);
    loop.Step();
    loop.scheduler.Finish(id, true);
  }
  EXPECT_EQ(loop.cache->NumFreeBlocks(), 2);
  loop.Add(50, RequestId{1});  // 3 blocks, one of them kept
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{2, 20, 30, true}));
  EXPECT_TRUE(loop.scheduler.IsKept(RequestId{0}));
  loop.Add(4);
  for (int i = 0; i < 13; ++i) loop.Step();  // closes its first block
  EXPECT_FALSE(loop.scheduler.IsKept(RequestId{0}));
  EXPECT_THAT(loop.preempted, IsEmpty());
  loop.scheduler.Release(RequestId{0});  // gone already: ignored
}

TEST(Scheduler, ADroppedCacheIsComputedAgain) {
  Loop loop(8, 1, 64);
  const RequestId first = loop.Add(20);
  loop.Step();
  loop.scheduler.Finish(first, true);
  loop.Add(4);  // needs the only place for a sequence
  loop.Add(50, first);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{1, 0, 4, true}));
  loop.scheduler.Finish(RequestId{1}, false);
  EXPECT_THAT(loop.Step(), ElementsAre(Chunk{2, 0, 50, true}));
}

TEST(Scheduler, FinishFreesRunningAndWaiting) {
  Loop loop(4, 1, 64);
  loop.Add(20);
  loop.Add(20);
  loop.Step();
  loop.scheduler.Finish(RequestId{1}, true);  // was never computed: nothing to keep
  EXPECT_EQ(loop.scheduler.num_kept(), 0);
  loop.scheduler.Finish(RequestId{0}, false);
  EXPECT_EQ(loop.cache->NumFreeBlocks(), 4);
  EXPECT_FALSE(loop.scheduler.HasWork());
  EXPECT_FALSE(loop.scheduler.Oldest());
}

// Random arrivals, ends and continuations in a tiny pool: the oldest request always advances, every
// request ends with the tokens it wants, nothing leaks.
TEST(Scheduler, RandomLoadAlwaysAdvances) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const auto uniform = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int num_blocks = uniform(4, 12);
    const int longest = num_blocks * kBlockSize + kBlockSize - 1;
    Loop loop(num_blocks, uniform(1, 5), uniform(5, 40));
    std::map<RequestId, int> wanted;  // length at which a request ends
    std::map<RequestId, int> kept;
    int finished = 0, preemptions = 0;
    for (int step = 0; step < 3000; ++step) {
      if (wanted.size() < 6 && uniform(0, 3) == 0) {
        int prompt = uniform(1, longest);
        std::optional<RequestId> continue_from;
        if (!kept.empty() && uniform(0, 1) == 0 && kept.begin()->second < longest) {
          continue_from = kept.begin()->first;
          prompt = uniform(kept.begin()->second + 1, longest);
          kept.erase(kept.begin());
        }
        const RequestId id = loop.Add(prompt, continue_from);
        wanted[id] = uniform(prompt, longest);
      }
      if (wanted.empty()) continue;
      const RequestId oldest = *loop.scheduler.Oldest();
      const std::vector<Chunk> chunks = loop.Step();
      preemptions += static_cast<int>(loop.preempted.size());
      ASSERT_TRUE(std::ranges::any_of(chunks, [&](const Chunk& chunk) {
        return chunk.request == oldest.value;
      })) << step;
      for (const Chunk& chunk : chunks) {
        const RequestId id{chunk.request};
        if (!chunk.reaches_end || chunk.start + chunk.num_tokens < wanted.at(id)) continue;
        const bool keep = uniform(0, 2) == 0;
        if (keep) kept[id] = wanted.at(id);
        loop.scheduler.Finish(id, keep);
        wanted.erase(id);
        ++finished;
      }
    }
    EXPECT_GT(finished, 20);
    if (loop.cache->config().max_num_seqs > 2) {
      EXPECT_GT(preemptions, 0);
    }
    for (const auto& [id, length] : wanted) loop.scheduler.Finish(id, false);
    for (int64_t id = 0; id < loop.next_id; ++id) loop.scheduler.Release(RequestId{id});
    EXPECT_EQ(loop.cache->NumFreeBlocks(), num_blocks);
    EXPECT_EQ(loop.cache->Stats().num_sequences, 0);
  }
}

}  // namespace
}  // namespace turboquant
