// AlignedBuffer and VirtualArena.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "base/aligned_buffer.h"
#include "base/virtual_arena.h"

namespace turboquant {
namespace {

TEST(AlignedBufferTest, AlignedZeroedAndMovable) {
  for (size_t n : {1, 15, 16, 17, 1000}) {
    AlignedBuffer<float> buffer(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kCacheLineBytes, 0u);
    ASSERT_EQ(buffer.size(), n);
    for (float value : buffer.span()) ASSERT_EQ(value, 0.0f);
    buffer[n - 1] = 3;
    float* data = buffer.data();
    AlignedBuffer<float> moved = std::move(buffer);
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(moved[n - 1], 3.0f);
    EXPECT_EQ(buffer.size(), 0u);  // NOLINT(bugprone-use-after-move): moved-from is empty
    buffer = std::move(moved);
    EXPECT_EQ(buffer.data(), data);
  }
  EXPECT_EQ(AlignedBuffer<int>(0).data(), nullptr);
}

TEST(VirtualArenaTest, CommitsOnDemand) {
  auto arena = VirtualArena::Reserve((size_t{1} << 30) + 1);
  ASSERT_TRUE(arena) << arena.error().message;
  EXPECT_GT(arena->reserved(), size_t{1} << 30);
  EXPECT_EQ(arena->committed(), 0u);
  ASSERT_TRUE(arena->EnsureCommitted(5000));
  EXPECT_GE(arena->committed(), 5000u);
  EXPECT_LT(arena->committed(), size_t{1} << 20);
  EXPECT_EQ(arena->data()[4999], 0);
  arena->data()[4999] = 7;
  uint8_t* const data = arena->data();
  ASSERT_TRUE(arena->EnsureCommitted(1 << 20));
  EXPECT_EQ(arena->data(), data);
  EXPECT_EQ(data[4999], 7);
  EXPECT_EQ(data[(1 << 20) - 1], 0);
  const size_t before = arena->committed();
  ASSERT_TRUE(arena->EnsureCommitted(10));
  EXPECT_EQ(arena->committed(), before);
  arena->Poison(5000, 2);
  EXPECT_EQ(data[4999], 7);
  EXPECT_EQ(data[5000], VirtualArena::kPoisonByte);
  EXPECT_EQ(data[5001], VirtualArena::kPoisonByte);
  EXPECT_EQ(data[5002], 0);
  VirtualArena moved = std::move(*arena);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(arena->data(), nullptr);  // NOLINT(bugprone-use-after-move)
}

TEST(VirtualArenaTest, RefusesWhatCannotBeHad) {
  const auto arena = VirtualArena::Reserve(SIZE_MAX / 2);
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().code, ErrorCode::kOutOfMemory);
  EXPECT_FALSE(VirtualArena::Reserve(SIZE_MAX));
  EXPECT_TRUE(VirtualArena::Reserve(0));
}

TEST(VirtualArenaDeathTest, UncommittedPagesAreNotAccessible) {
  auto arena = VirtualArena::Reserve(1 << 20);
  ASSERT_TRUE(arena);
  EXPECT_DEATH(arena->data()[0] = 1, "");
  EXPECT_DEATH((void)arena->EnsureCommitted(size_t{2} << 20), "CHECK failed");
}

}  // namespace
}  // namespace turboquant
