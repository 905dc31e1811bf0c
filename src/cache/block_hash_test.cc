#include "cache/block_hash.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace turboquant {
namespace {

std::vector<KvCacheSpec> TwoLayers() {
  KvCacheSpec spec;
  spec.num_kv_heads = 3;
  spec.head_dim = 64;
  return {spec, spec};
}

// By the Python package xxhash 3: xxhash.xxh3_128_hexdigest(struct.pack('<QQ4I', 1, 2, 10, 20, 30,
// 40)).
TEST(BlockHash, EqualsXxh3OfLittleEndianBytes) {
  const std::array<int32_t, 4> tokens = {10, 20, 30, 40};
  const BlockHash hash = HashBlock({.low = 1, .high = 2}, tokens);
  EXPECT_EQ(hash.high, 0xdb344f9becd7a766u);
  EXPECT_EQ(hash.low, 0x404bcac04b6456b1u);
}

TEST(BlockHash, DependsOnParentAndEveryToken) {
  const BlockHash root = RootHash(TwoLayers(), 4, 0, "");
  const std::vector<int32_t> tokens = {1, 2, 3, 4};
  const BlockHash hash = HashBlock(root, tokens);
  EXPECT_EQ(HashBlock(root, tokens), hash);
  EXPECT_NE(HashBlock(hash, tokens), hash);
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::vector<int32_t> other = tokens;
    other[i] += 1;
    EXPECT_NE(HashBlock(root, other), hash) << i;
  }
  EXPECT_NE(HashBlock(root, std::vector<int32_t>{2, 1, 3, 4}), hash);
  EXPECT_NE(HashBlock(root, std::vector<int32_t>{1, 2, 3}), hash);
}

TEST(BlockHash, RootDependsOnEverythingThatChangesStoredBytes) {
  const BlockHash root = RootHash(TwoLayers(), 4, 0, "table-1");
  EXPECT_EQ(RootHash(TwoLayers(), 4, 0, "table-1"), root);
  EXPECT_NE(RootHash(TwoLayers(), 4, 0, "table-2"), root);
  EXPECT_NE(RootHash(TwoLayers(), 3, 0, "table-1"), root);
  EXPECT_NE(RootHash(TwoLayers(), 4, 64, "table-1"), root);
  const std::vector<std::function<void(KvCacheSpec*)>> changes = {
      [](KvCacheSpec* spec) { spec->k.dtype = KvCacheDtype::kFp8E4m3; },
      [](KvCacheSpec* spec) { spec->v.dtype = KvCacheDtype::kInt4Sym; },
      [](KvCacheSpec* spec) { spec->k.granularity = ScaleGranularity::kPerHead; },
      [](KvCacheSpec* spec) { spec->v.group_size = 32; },
      [](KvCacheSpec* spec) { spec->v.transform = KvTransform::kRotated; },
      [](KvCacheSpec* spec) { spec->num_kv_heads = 4; },
      [](KvCacheSpec* spec) { spec->head_dim = 80; },
      [](KvCacheSpec* spec) { spec->block_size = 32; },
      [](KvCacheSpec* spec) { std::swap(spec->num_kv_heads, spec->head_dim); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    for (const size_t layer : {size_t{0}, size_t{1}}) {
      std::vector<KvCacheSpec> layers = TwoLayers();
      changes[i](&layers[layer]);
      EXPECT_NE(RootHash(layers, 4, 0, "table-1"), root) << "change " << i << " of layer " << layer;
    }
  }
  std::vector<KvCacheSpec> three = TwoLayers();
  three.push_back(three[0]);
  EXPECT_NE(RootHash(three, 4, 0, "table-1"), root);
}

}  // namespace
}  // namespace turboquant
