#include "eval/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace turboquant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DivergenceSummary Good() {
  return {.num_tokens = 1000,
          .kl_mean = 0.004,
          .kl_p99 = 0.04,
          .kl_p999 = 0.2,
          .kl_standard_error = 0.0003,
          .top1_agreement = 0.99,
          .perplexity = 20.05,
          .perplexity_reference = 20.0};
}

std::vector<std::string> Violations(std::string_view gate, const DivergenceSummary& measured) {
  const auto parsed = ParseGate(gate);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return GateViolations(*parsed, {.text = &measured});
}

TEST(Gate, Presets) {
  EXPECT_THAT(Violations("default", Good()), IsEmpty());
  EXPECT_THAT(Violations("low-bit", Good()), IsEmpty());
  EXPECT_THAT(Violations("strict", Good()),
              ElementsAre("mean KL 0.004 +- 0.0003 is above 0.0005",
                          "rise of perplexity in percent 0.25 is above 0.2"));
}

TEST(Gate, EveryLimitCountsAndTheLimitItselfPasses) {
  EXPECT_THAT(Violations("kl<=0.004", Good()), IsEmpty());
  EXPECT_THAT(Violations("kl<=0.0039", Good()), ElementsAre(HasSubstr("mean KL")));
  EXPECT_THAT(Violations("kl_p99<=0.039", Good()), ElementsAre(HasSubstr("99 %")));
  EXPECT_THAT(Violations("kl_p999<=0.19", Good()), ElementsAre(HasSubstr("99.9 %")));
  EXPECT_THAT(Violations("top1>=99", Good()), IsEmpty());
  EXPECT_THAT(Violations("top1>=99.1%", Good()), ElementsAre(HasSubstr("is below 99.1")));
  EXPECT_THAT(Violations("ppl<=0.24%", Good()), ElementsAre(HasSubstr("perplexity")));
  EXPECT_THAT(Violations("ppl<=0.3", Good()), IsEmpty());
}

TEST(Gate, TasksCountInPoints) {
  const auto gate = ParseGate("task<=7%");
  ASSERT_TRUE(gate) << gate.error().message;
  EXPECT_TRUE(gate->NeedsTasks());
  EXPECT_FALSE(gate->NeedsText());
  TaskComparison tasks = {.reference = {.num_items = 100, .num_right = 80},
                          .candidate = {.num_items = 100, .num_right = 73},
                          .loss_standard_error = 0.03};
  EXPECT_THAT(GateViolations(*gate, {.tasks = &tasks}), IsEmpty());
  tasks.candidate.num_right = 72;
  EXPECT_THAT(GateViolations(*gate, {.tasks = &tasks}),
              ElementsAre("loss of task accuracy in points 8 +- 3 is above 7"));
  tasks.candidate.num_right = 90;  // more than the reference
  EXPECT_THAT(GateViolations(*gate, {.tasks = &tasks}), IsEmpty());

  const auto both = ParseGate("kl<=0.001,task<=0");
  ASSERT_TRUE(both);
  EXPECT_TRUE(both->NeedsTasks() && both->NeedsText());
  const DivergenceSummary text = Good();
  EXPECT_EQ(GateViolations(*both, {.text = &text, .tasks = &tasks}).size(), 1u);
  tasks.candidate.num_right = 79;
  EXPECT_EQ(GateViolations(*both, {.text = &text, .tasks = &tasks}).size(), 2u);
  EXPECT_FALSE(ParseGate("default")->NeedsTasks());
}

TEST(Gate, WhatIsNoNumberDoesNotPass) {
  DivergenceSummary broken = Good();
  broken.kl_mean = broken.perplexity = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(Violations("default", broken).size(), 2u);
}

TEST(Gate, RefusesWhatItCannotRead) {
  for (const auto& [text, part] :
       {std::pair{"", "want kl<=X"}, std::pair{"tasks<=1%", "want kl<=X"},
        std::pair{"kl", "want kl<=X"}, std::pair{"kl>=1", "kl takes <="},
        std::pair{"top1<=99", "top1 takes >="}, std::pair{"task>=1", "task takes <="},
        std::pair{"kl<=", "'' is no number"}, std::pair{"kl<=0.1x", "'0.1x' is no number"},
        std::pair{"kl<=1%", "'1%' is no number"}, std::pair{"kl<=nan", "is no number"},
        std::pair{"kl<=inf", "is no number"}, std::pair{"kl<=1,", "want kl<=X"},
        std::pair{"Strict", "strict, default, low-bit"}}) {
    const auto gate = ParseGate(text);
    ASSERT_FALSE(gate) << text;
    EXPECT_EQ(gate.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(gate.error().message, HasSubstr(part));
  }
}

std::vector<std::string> Alternatives(const EvaluationCandidate& refused, double bits,
                                      int head_dim) {
  std::vector<std::string> flags;
  for (const EvaluationCandidate& candidate : GateAlternatives(refused, bits, head_dim)) {
    flags.push_back(ToFlags(candidate));
  }
  return flags;
}

TEST(Gate, AlternativesAscendInBits) {
  EXPECT_THAT(
      Alternatives({"int3", "", ""}, 3.1875, 64),
      ElementsAre("--kv-cache-dtype int3 --kv-recent-tokens 512", "--kv-cache-dtype int4",
                  "--kv-cache-dtype int5", "--kv-cache-dtype int6/int4", "--kv-cache-dtype int6",
                  "--kv-cache-dtype int8", "--kv-cache-dtype f16"));
  // Without rotation: the same bits with it come first. A head of 80 has no int5.
  EXPECT_THAT(Alternatives({"int8", "", "none"}, 8.25, 64).front(), "--kv-cache-dtype int8");
  EXPECT_THAT(
      Alternatives({"int4", "", ""}, 4.2, 80),
      ElementsAre("--kv-cache-dtype int4 --kv-recent-tokens 512", "--kv-cache-dtype int6/int4",
                  "--kv-cache-dtype int6", "--kv-cache-dtype int8", "--kv-cache-dtype f16"));
  // Static scales: the format with scales of its own first.
  EXPECT_THAT(Alternatives({"int8", "per_head", ""}, 8.0, 64).front(), "--kv-cache-dtype int8");
  EXPECT_THAT(Alternatives({"f16", "", ""}, 16.0, 64), IsEmpty());
  const EvaluationCandidate cooled = {.kv_cache_dtype = "f16", .softmax_temperature = 0.9};
  EXPECT_THAT(Alternatives(cooled, 16.0, 64), ElementsAre("--kv-cache-dtype f16"));
}

}  // namespace
}  // namespace turboquant
