#include "eval/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace turboquant {
namespace {

using ::testing::ElementsAre;

TEST(JudgeAnswer, TheFirstLineThatIsNotBlankCounts) {
  EXPECT_EQ(JudgeAnswer("\n  42\nQuestion", "42", false), AnswerState::kRight);
  EXPECT_EQ(JudgeAnswer(" 42 ", "42", true), AnswerState::kRight);
  EXPECT_EQ(JudgeAnswer("42\r\n", "42", false), AnswerState::kRight);
  EXPECT_EQ(JudgeAnswer("42.\n", "42", false), AnswerState::kWrong);
  EXPECT_EQ(JudgeAnswer("4", "42", true), AnswerState::kWrong);
  EXPECT_EQ(JudgeAnswer(" \n", "42", true), AnswerState::kWrong);
  EXPECT_EQ(JudgeAnswer("a b\n", "a  b", false), AnswerState::kWrong);
}

TEST(JudgeAnswer, IsOpenOnlyWhileItMayBecomeRight) {
  EXPECT_EQ(JudgeAnswer("", "42", false), AnswerState::kOpen);
  EXPECT_EQ(JudgeAnswer("\n ", "42", false), AnswerState::kOpen);
  EXPECT_EQ(JudgeAnswer(" 4", "42", false), AnswerState::kOpen);
  EXPECT_EQ(JudgeAnswer(" 42", "42", false), AnswerState::kOpen);
  EXPECT_EQ(JudgeAnswer(" 42 ", "42", false), AnswerState::kOpen);
  EXPECT_EQ(JudgeAnswer(" 427", "42", false), AnswerState::kWrong);
  EXPECT_EQ(JudgeAnswer(" 5", "42", false), AnswerState::kWrong);
  EXPECT_EQ(JudgeAnswer(" 42 x", "42", false), AnswerState::kWrong);
}

TEST(CompareTasks, CountsWhatChangedAndItsError) {
  TaskSet tasks;
  tasks.items.resize(5);
  tasks.items[3].kind = tasks.items[4].kind = TaskKind::kExact;
  const TaskAnswers reference = {.kv_cache_dtype = "f32", .right = {true, true, false, true, true}};
  const TaskAnswers candidate = {
      .kv_cache_dtype = "int2", .bits_per_value = 2.2, .right = {true, false, true, false, false}};
  const TaskComparison found = CompareTasks(tasks, reference, candidate);
  EXPECT_EQ(found.kv_cache_dtype, "int2");
  EXPECT_EQ(found.bits_per_value, 2.2);
  EXPECT_THAT(found.lost, ElementsAre(1, 3, 4));
  EXPECT_THAT(found.gained, ElementsAre(2));
  EXPECT_EQ(found.reference.num_right, 4);
  EXPECT_DOUBLE_EQ(found.reference.accuracy, 0.8);
  // Standard deviation of {1, 1, 0, 1, 1} with n - 1, over the root of n.
  EXPECT_DOUBLE_EQ(found.reference.standard_error, std::sqrt(0.8 / 4 / 5));
  EXPECT_EQ(found.candidate.num_right, 2);
  EXPECT_EQ(found.candidate_by_kind[0].num_items, 3);
  EXPECT_EQ(found.candidate_by_kind[0].num_right, 2);
  EXPECT_EQ(found.candidate_by_kind[1].num_right, 0);
  EXPECT_EQ(found.reference_by_kind[1].num_right, 2);
  EXPECT_DOUBLE_EQ(found.loss, 0.4);
  // The same of {0, 1, -1, 1, 1}: squares around the mean 0.4 sum to 3.2.
  EXPECT_DOUBLE_EQ(found.loss_standard_error, std::sqrt(3.2 / 4 / 5));

  const TaskComparison same = CompareTasks(tasks, reference, reference);
  EXPECT_EQ(same.loss, 0.0);
  EXPECT_EQ(same.loss_standard_error, 0.0);
  EXPECT_TRUE(same.lost.empty() && same.gained.empty());
}

}  // namespace
}  // namespace turboquant
