#include "cache/kv_cache_manager.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "cache/slot_arena.h"

namespace turboquant {
namespace {

KvCacheSpec Spec(KvCacheDtype dtype, ScaleGranularity granularity, int heads = 3, int head_dim = 64,
                 int block_size = 64) {
  const KvSideSpec side = {.dtype = dtype, .granularity = granularity, .group_size = 0};
  return {
      .k = side, .v = side, .num_kv_heads = heads, .head_dim = head_dim, .block_size = block_size};
}
KvCacheSpec Int8(int block_size = 64) {
  return Spec(KvCacheDtype::kInt8, ScaleGranularity::kPerTokenHead, 3, 64, block_size);
}
KvCacheSpec F16(int block_size = 64) {
  return Spec(KvCacheDtype::kF16, ScaleGranularity::kNone, 3, 64, block_size);
}

// Blocks of 16 tokens so that tests stay short: an int8 and an f16 layer.
KvCacheConfig SmallConfig(int num_blocks, int max_num_seqs) {
  return {.layers = {Int8(16), F16(16)},
          .static_scales = {},
          .num_blocks = num_blocks,
          .max_num_seqs = max_num_seqs,
          .num_sink_tokens = 4};
}

std::unique_ptr<KvCacheManager> Make(KvCacheConfig config) {
  auto manager = KvCacheManager::Create(std::move(config));
  EXPECT_TRUE(manager) << manager.error().message;
  return std::move(*manager);
}

void Append(KvCacheManager* manager, SequenceId id, int num_tokens) {
  ASSERT_TRUE(manager->AllocateSlots(id, num_tokens));
  manager->Commit(id);
}

TEST(KvCacheManager, BytesAreThoseOfTheFormats) {
  auto manager =
      Make({.layers = {Int8(), F16()}, .static_scales = {}, .num_blocks = 10, .max_num_seqs = 2});
  // Per KV head: 64 f16 scales for K and for V, then 64 x 64 codes of one byte each side.
  const size_t int8_block = 3 * (2 * 64 * 2 + 2 * 64 * 64);
  const size_t f16_block = 3 * (2 * 64 * 64 * 2);
  EXPECT_EQ(manager->BytesPerBlockAllLayers(), int8_block + f16_block);
  // A tail per layer; sinks of 16 slots only where closed blocks are not exact.
  const size_t exact = 2 * f16_block + f16_block / 4;
  EXPECT_EQ(manager->BytesPerSequence(), exact);
  EXPECT_EQ(BytesPerSequence(manager->config()), exact);
  KvCacheStats stats = manager->Stats();
  EXPECT_EQ(stats.block_bytes_reserved, 10 * (int8_block + f16_block));
  EXPECT_EQ(stats.sequence_bytes_reserved, 2 * exact);
  EXPECT_EQ(stats.block_bytes_used, 0u);

  const SequenceId a = *manager->AddSequence();
  EXPECT_EQ(manager->Stats().sequence_bytes_used, 2 * f16_block);
  Append(manager.get(), a, 130);
  stats = manager->Stats();
  EXPECT_EQ(stats.sequence_bytes_used, exact);
  EXPECT_EQ(stats.block_bytes_used, 2 * (int8_block + f16_block));
  EXPECT_EQ(stats.num_tokens, 130);
  manager->Free(a);
  stats = manager->Stats();
  EXPECT_EQ(stats.block_bytes_used, 0u);
  EXPECT_EQ(stats.sequence_bytes_used, 0u);
  EXPECT_EQ(stats.block_bytes_committed, 2 * (int8_block + f16_block));
  EXPECT_EQ(stats.num_free_blocks, 10);
}

TEST(KvCacheManager, BlocksOfALayerLieBytesPerBlockApart) {
  auto manager = Make(SmallConfig(8, 1));
  const SequenceId a = *manager->AddSequence();
  Append(manager.get(), a, 40);
  for (int layer = 0; layer < 2; ++layer) {
    const PagedKvView view = manager->View(layer, a);
    EXPECT_EQ(view.bytes_per_block, view.spec->BytesPerBlock());
    ASSERT_EQ(view.blocks.size(), 2u);
    EXPECT_EQ(view.Block(1),
              view.arena + static_cast<size_t>(view.blocks[1].value) * view.spec->BytesPerBlock());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.Block(1)) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(view.tail) % 64, 0u);
    std::memset(view.Block(0), 1, view.bytes_per_block);
    std::memset(view.Block(1), 2, view.bytes_per_block);
    EXPECT_EQ(view.Block(0)[view.bytes_per_block - 1], 1);
  }
}

TEST(KvCacheManager, ReservesExactlyTheBlocksThatClose) {
  auto manager = Make(SmallConfig(3, 2));
  const SequenceId a = *manager->AddSequence();
  Append(manager.get(), a, 15);
  EXPECT_EQ(manager->NumFreeBlocks(), 3);
  EXPECT_EQ(manager->NumBlocksNeeded(a, 1), 1);
  ASSERT_TRUE(manager->AllocateSlots(a, 18));
  EXPECT_EQ(manager->NumFreeBlocks(), 1);
  EXPECT_EQ(manager->NumTokens(a), 15);
  EXPECT_EQ(manager->NumReservedTokens(a), 18);
  EXPECT_EQ(manager->View(0, a).blocks.size(), 2u);
  manager->Commit(a);
  EXPECT_EQ(manager->NumTokens(a), 33);
  EXPECT_EQ(manager->NumReservedTokens(a), 0);
}

TEST(KvCacheManager, RefusalChangesNothing) {
  auto manager = Make(SmallConfig(3, 2));
  const SequenceId a = *manager->AddSequence();
  const SequenceId b = *manager->AddSequence();
  Append(manager.get(), a, 32);
  EXPECT_FALSE(manager->AllocateSlots(b, 32));
  EXPECT_EQ(manager->NumFreeBlocks(), 1);
  EXPECT_EQ(manager->NumTokens(b), 0);
  EXPECT_EQ(manager->NumReservedTokens(b), 0);
  EXPECT_TRUE(manager->View(0, b).blocks.empty());
  EXPECT_TRUE(manager->AllocateSlots(b, 31));
  EXPECT_FALSE(manager->AllocateSlots(a, 16));
  EXPECT_FALSE(manager->AddSequence());
  manager->Free(b);  // with its reservation
  EXPECT_EQ(manager->NumFreeBlocks(), 1);
  EXPECT_TRUE(manager->AllocateSlots(a, 16));
}

TEST(KvCacheManager, ForkSharesBlocksAndSinksAndCopiesTheTail) {
  auto manager = Make(SmallConfig(8, 3));
  const SequenceId a = *manager->AddSequence();
  Append(manager.get(), a, 20);
  std::memset(manager->View(0, a).tail, 7, manager->View(0, a).tail_spec->BytesPerBlock());
  const size_t used = manager->Stats().sequence_bytes_used;
  const SequenceId b = *manager->Fork(a);
  const PagedKvView parent = manager->View(0, a);
  const PagedKvView child = manager->View(0, b);
  EXPECT_EQ(manager->NumTokens(b), 20);
  EXPECT_EQ(manager->NumFreeBlocks(), 7);
  EXPECT_EQ(child.Block(0), parent.Block(0));
  EXPECT_EQ(child.sinks, parent.sinks);
  EXPECT_NE(child.tail, parent.tail);
  EXPECT_EQ(std::memcmp(child.tail, parent.tail, parent.tail_spec->BytesPerBlock()), 0);
  EXPECT_EQ(manager->Stats().sequence_bytes_used - used, 2 * F16(16).BytesPerBlock());

  Append(manager.get(), a, 12);
  Append(manager.get(), b, 12);
  EXPECT_EQ(manager->View(0, a).Block(0), manager->View(0, b).Block(0));
  EXPECT_NE(manager->View(0, a).Block(1), manager->View(0, b).Block(1));
  manager->Free(a);
  EXPECT_EQ(manager->NumFreeBlocks(), 6);  // b holds both of its blocks
  EXPECT_NE(manager->View(0, b).sinks, nullptr);
  manager->Free(b);
  EXPECT_EQ(manager->NumFreeBlocks(), 8);
  EXPECT_EQ(manager->Stats().sequence_bytes_used, 0u);
}

TEST(KvCacheManager, RecentCopiesBelongToTheSequence) {
  KvCacheSpec int4 = Int8();
  int4.k.dtype = int4.v.dtype = KvCacheDtype::kInt4;
  int4.k.granularity = int4.v.granularity = ScaleGranularity::kPerTokenHeadU8;
  int4.k.transform = KvTransform::kCentered;
  int4.v.transform = KvTransform::kRotated;
  KvCacheConfig config = {.layers = {int4, F16()},
                          .static_scales = {},
                          .num_blocks = 10,
                          .max_num_seqs = 2,
                          .num_recent_tokens = 128};
  EXPECT_EQ(RecentSpec(F16()), std::nullopt);
  EXPECT_EQ(RecentSpec(Int8()), std::nullopt);
  const KvCacheSpec copy = *RecentSpec(int4);
  EXPECT_EQ(copy.k.dtype, KvCacheDtype::kInt8);
  EXPECT_EQ(copy.k.transform, KvTransform::kCentered);
  auto manager = Make(config);
  config.num_recent_tokens = 0;
  EXPECT_EQ(manager->BytesPerSequence(), BytesPerSequence(config) + 2 * copy.BytesPerBlock());
  EXPECT_EQ(manager->BytesPerSequence(), BytesPerSequence(manager->config()));

  const SequenceId a = *manager->AddSequence();
  Append(manager.get(), a, 200);
  EXPECT_EQ(manager->View(1, a).recent, nullptr);
  const PagedKvView parent = manager->View(0, a);
  EXPECT_EQ(parent.recent_blocks, 2);
  EXPECT_EQ(parent.RecentBlock(2), parent.RecentBlock(0));
  EXPECT_EQ(parent.RecentBlock(1), parent.RecentBlock(0) + copy.BytesPerBlock());
  std::memset(parent.RecentBlock(0), 3, 2 * copy.BytesPerBlock());
  const SequenceId b = *manager->Fork(a);
  const PagedKvView child = manager->View(0, b);
  EXPECT_NE(child.recent, parent.recent);
  EXPECT_EQ(std::memcmp(child.recent, parent.recent, 2 * copy.BytesPerBlock()), 0);

  config.num_recent_tokens = 100;
  const auto refused = KvCacheManager::Create(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST(KvCacheManager, ForkInsideTheSinksCopiesThem) {
  auto manager = Make(SmallConfig(8, 2));
  const SequenceId a = *manager->AddSequence();
  Append(manager.get(), a, 3);
  const PagedKvView parent = manager->View(0, a);
  std::memset(parent.sinks, 5, parent.sink_spec->BytesPerBlock());
  const SequenceId b = *manager->Fork(a);
  const PagedKvView child = manager->View(0, b);
  ASSERT_NE(child.sinks, nullptr);
  EXPECT_NE(child.sinks, parent.sinks);
  EXPECT_EQ(std::memcmp(child.sinks, parent.sinks, parent.sink_spec->BytesPerBlock()), 0);
  EXPECT_FALSE(manager->Fork(a));
}

TEST(KvCacheManager, EmptySequencesForkToo) {
  auto manager = Make(SmallConfig(8, 2));
  const SequenceId a = *manager->AddSequence();
  const SequenceId b = *manager->Fork(a);
  Append(manager.get(), a, 1);
  Append(manager.get(), b, 1);
  EXPECT_NE(manager->View(0, a).sinks, manager->View(0, b).sinks);
}

TEST(KvCacheManager, OnlyLayersWithInexactBlocksKeepSinks) {
  auto manager = Make(SmallConfig(8, 1));
  const SequenceId a = *manager->AddSequence();
  EXPECT_EQ(manager->View(0, a).sinks, nullptr);
  EXPECT_EQ(manager->View(0, a).num_sink_tokens, 0);
  Append(manager.get(), a, 1);
  EXPECT_NE(manager->View(0, a).sinks, nullptr);
  EXPECT_EQ(manager->View(0, a).num_sink_tokens, 4);
  EXPECT_EQ(manager->View(0, a).sink_spec->block_size, kSinkTileTokens);
  EXPECT_EQ(manager->View(1, a).sinks, nullptr);
  EXPECT_EQ(manager->View(1, a).num_sink_tokens, 0);
}

TEST(KvCacheManager, ExactFormatIsF32WhereALayerStoresF32) {
  EXPECT_EQ(ExactSpec(Int8(), 16).k.dtype, KvCacheDtype::kF16);
  EXPECT_EQ(ExactSpec(Spec(KvCacheDtype::kBf16, ScaleGranularity::kNone), 16).v.dtype,
            KvCacheDtype::kF16);
  KvCacheSpec mixed = F16();
  mixed.v.dtype = KvCacheDtype::kF32;
  EXPECT_EQ(ExactSpec(mixed, 16).k.dtype, KvCacheDtype::kF32);
  EXPECT_EQ(ExactSpec(mixed, 16).block_size, 16);
  EXPECT_EQ(ExactSpec(mixed, 16).num_kv_heads, 3);
}

TEST(KvCacheManager, NewSequencesReadZeroWhateverWasThere) {
  auto manager = Make(SmallConfig(8, 1));
  for (int round = 0; round < 2; ++round) {
    const SequenceId a = *manager->AddSequence();
    Append(manager.get(), a, 5);
    const PagedKvView view = manager->View(0, a);
    const size_t tail_bytes = view.tail_spec->BytesPerBlock();
    const size_t sink_bytes = view.sink_spec->BytesPerBlock();
    EXPECT_EQ(std::vector<uint8_t>(view.tail, view.tail + tail_bytes),
              std::vector<uint8_t>(tail_bytes, 0));
    EXPECT_EQ(std::vector<uint8_t>(view.sinks, view.sinks + sink_bytes),
              std::vector<uint8_t>(sink_bytes, 0));
    std::memset(view.tail, 9, tail_bytes);
    std::memset(view.sinks, 9, sink_bytes);
    manager->Free(a);
  }
}

TEST(KvCacheManagerDeathTest, FreedBytesArePoisoned) {
  auto manager = Make(SmallConfig(8, 1));
  const SequenceId a = *manager->AddSequence();
  Append(manager.get(), a, 16);
  const PagedKvView view = manager->View(1, a);
  const volatile uint8_t* last = view.Block(0) + view.bytes_per_block - 1;
  const volatile uint8_t* tail = view.tail;
  EXPECT_EQ(*last, 0);
  manager->Free(a);
  if (SlotArena::kTrapsRetired) {
    EXPECT_DEATH((void)*last, "use-after-poison");
    EXPECT_DEATH((void)*tail, "use-after-poison");
  } else {
    EXPECT_EQ(*last, SlotArena::kPoisonsRetired ? VirtualArena::kPoisonByte : 0);
    EXPECT_EQ(*tail, SlotArena::kPoisonsRetired ? VirtualArena::kPoisonByte : 0);
  }
  EXPECT_TRUE(manager->AllocateSlots(*manager->AddSequence(), 16));
  EXPECT_EQ(*tail, 0);
}

std::string CreateError(const KvCacheConfig& config) {
  const auto manager = KvCacheManager::Create(config);
  return manager ? "no error" : manager.error().message;
}

TEST(KvCacheManager, RefusesBadConfigs) {
  KvCacheConfig config = SmallConfig(8, 1);
  config.layers.clear();
  EXPECT_NE(CreateError(config).find("at least one layer"), std::string::npos);
  EXPECT_NE(CreateError(SmallConfig(0, 1)).find("must be 1 to 16777216"), std::string::npos);
  EXPECT_NE(CreateError(SmallConfig(kMaxBlocks + 1, 1)).find("must be 1 to 16777216"),
            std::string::npos);
  EXPECT_NE(CreateError(SmallConfig(1, 0)).find("at least one sequence"), std::string::npos);
  config = SmallConfig(8, 1);
  config.num_sink_tokens = 17;
  EXPECT_NE(CreateError(config).find("0 to 16"), std::string::npos);
  config = SmallConfig(8, 1);
  config.layers[1].block_size = 32;
  EXPECT_NE(CreateError(config).find("layer 1: block size 32, layer 0 has 16"), std::string::npos);
  config.layers[1].block_size = 17;
  EXPECT_NE(CreateError(config).find("layer 1"), std::string::npos);
  // More than the address space.
  config = SmallConfig(kMaxBlocks, 1);
  config.layers.assign(8, Spec(KvCacheDtype::kF32, ScaleGranularity::kNone, 64, 256, 64));
  const auto huge = KvCacheManager::Create(config);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().code, ErrorCode::kOutOfMemory);
}

TEST(KvCacheManager, ChecksStaticScales) {
  KvCacheConfig config = SmallConfig(8, 1);
  config.layers.resize(1);
  config.layers[0].k.granularity = ScaleGranularity::kPerHead;
  EXPECT_NE(CreateError(config).find("layer 0: 0 static K scales given, per_head needs 3"),
            std::string::npos);
  config.static_scales = {{.k = {1, 2, 3}, .v = {}}};
  auto manager = Make(config);
  EXPECT_EQ(manager->View(0, *manager->AddSequence()).static_scales->k,
            (std::vector<float>{1, 2, 3}));
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()}) {
    config.static_scales = {{.k = {1, bad, 3}, .v = {}}};
    EXPECT_NE(CreateError(config).find("layer 0: static K scale 1 is"), std::string::npos) << bad;
  }
  config.static_scales = {{.k = {1, 2, 3}, .v = {1}}};
  EXPECT_NE(CreateError(config).find("layer 0: 1 static V scales given"), std::string::npos);
  config.static_scales.resize(2);
  EXPECT_NE(CreateError(config).find("static scales for 2 layers, the cache has 1"),
            std::string::npos);
}

TEST(KvCacheManagerDeathTest, RefusesMisuse) {
  auto manager = Make(SmallConfig(8, 2));
  const SequenceId a = *manager->AddSequence();
  EXPECT_DEATH(manager->Commit(a), "num_reserved_");
  ASSERT_TRUE(manager->AllocateSlots(a, 1));
  EXPECT_DEATH(manager->AllocateSlots(a, 1), "num_reserved_");
  EXPECT_DEATH(manager->Fork(a), "num_reserved");
  EXPECT_DEATH(manager->Free(SequenceId{1}), "has_value");
  EXPECT_DEATH(manager->View(2, a), "layers");
}

}  // namespace
}  // namespace turboquant
