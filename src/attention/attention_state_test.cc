#include "attention/attention_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace turboquant {
namespace {

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

struct OwnedState {
  explicit OwnedState(size_t num_rows, size_t head_dim)
      : output(num_rows * head_dim), max(num_rows), sum(num_rows) {}
  AttentionState state() { return {.output = output.data(), .max = max.data(), .sum = sum.data()}; }
  bool operator==(const OwnedState&) const = default;
  std::vector<float> output, max, sum;
};

OwnedState Make(float max, float sum, std::vector<float> output) {
  OwnedState state(1, output.size());
  state.max[0] = max;
  state.sum[0] = sum;
  state.output = std::move(output);
  return state;
}

TEST(AttentionStateTest, MergeAddsWhatBothHaveSeen) {
  OwnedState a = Make(2.0f, 3.0f, {1.0f, -2.0f});
  OwnedState b = Make(5.0f, 0.5f, {4.0f, 8.0f});
  Merge(b.state(), 1, 2, a.state());
  const double factor = std::exp(-3.0);
  EXPECT_EQ(a.max[0], 5.0f);
  EXPECT_NEAR(a.sum[0], 3 * factor + 0.5, 1e-7);
  EXPECT_NEAR(a.output[0], factor + 4, 1e-6);
  EXPECT_NEAR(a.output[1], -2 * factor + 8, 1e-6);
}

TEST(AttentionStateTest, EmptyStatesChangeNoBit) {
  const OwnedState full = Make(-7.25f, 1.0f / 3, {0.1f, -0.7f});
  OwnedState empty(1, 2);
  Reset(empty.state(), 1, 2);
  EXPECT_EQ(empty.max[0], kEmpty);

  OwnedState left = full;
  Merge(empty.state(), 1, 2, left.state());
  EXPECT_EQ(left, full);

  OwnedState right = empty;
  OwnedState source = full;
  Merge(source.state(), 1, 2, right.state());
  EXPECT_EQ(right, full);

  OwnedState both = empty;
  Merge(empty.state(), 1, 2, both.state());
  EXPECT_EQ(both, empty);
}

TEST(AttentionStateTest, RowsAreIndependent) {
  OwnedState a(2, 1), b(2, 1);
  Reset(a.state(), 2, 1);
  Reset(b.state(), 2, 1);
  a.max[0] = 1;
  a.sum[0] = 2;
  a.output[0] = 3;
  b.max[1] = 4;
  b.sum[1] = 5;
  b.output[1] = 6;
  Merge(b.state(), 2, 1, a.state());
  EXPECT_EQ(a.output, (std::vector<float>{3, 6}));
  EXPECT_EQ(a.max, (std::vector<float>{1, 4}));
  EXPECT_EQ(a.sum, (std::vector<float>{2, 5}));
}

TEST(AttentionStateTest, FinishDividesByTheSum) {
  OwnedState a = Make(0.0f, 4.0f, {1.0f, -6.0f});
  std::vector<float> out(2);
  Finish(a.state(), 2, out.data());
  EXPECT_EQ(out, (std::vector<float>{0.25f, -1.5f}));
}

}  // namespace
}  // namespace turboquant
