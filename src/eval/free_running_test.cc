#include "eval/free_running.h"

#include <gtest/gtest.h>

namespace turboquant {
namespace {

TEST(EditDistance, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(EditDistance({}, {}), 0);
  EXPECT_EQ(EditDistance({1, 2, 3}, {1, 2, 3}), 0);
  EXPECT_EQ(EditDistance({}, {1, 2}), 2);
  EXPECT_EQ(EditDistance({1, 2, 3}, {1, 3}), 1);
  EXPECT_EQ(EditDistance({1, 2, 3}, {0, 1, 2, 3}), 1);
  EXPECT_EQ(EditDistance({1, 2, 3, 4}, {1, 9, 3, 8}), 2);
  // "kitten" and "sitting"
  EXPECT_EQ(EditDistance({'k', 'i', 't', 't', 'e', 'n'}, {'s', 'i', 't', 't', 'i', 'n', 'g'}), 3);
}

}  // namespace
}  // namespace turboquant
