// Tasks on a tiny model with random weights, against likelihoods from one pass over prompt and
// choice together: no fork, no prompt that is read once.
#include "eval/tasks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "eval/lane.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

class TasksTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto model = Model::Load({.path = std::string(TURBOQUANT_TINY_MODELS) + "/llama-h64-g3.gguf"});
    ASSERT_TRUE(model) << model.error().message;
    model_ = new std::shared_ptr<const Model>(*model);
  }
  static void TearDownTestSuite() {
    delete model_;
    model_ = nullptr;
  }
  void SetUp() override { ASSERT_NE(model_, nullptr); }

  static std::string Words(int count, std::mt19937* random) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += i > 0 ? " " : "";
      for (uint32_t letters = 2 + (*random)() % 6; letters > 0; --letters) {
        text += static_cast<char>('a' + (*random)() % 26);
      }
    }
    return text;
  }

  // Every third choice is longer than a step.
  static std::vector<TaskItem> Items() {
    std::mt19937 random(7);
    std::vector<TaskItem> items;
    for (int i = 0; i < 12; ++i) {
      TaskItem item = {.place = "f:" + std::to_string(i), .prompt = {}, .choices = {}};
      item.prompt.text = Words(60, &random) + (i % 2 == 0 ? "" : " ");
      for (int choice = 0; choice < 3; ++choice) {
        item.choices.push_back((i % 2 == 0 ? " " : "") +
                               Words(i % 3 == 0 && choice == 1 ? 80 : 2 + choice, &random));
      }
      items.push_back(std::move(item));
    }
    return items;
  }

  // Log-likelihood of the choice per byte.
  static double PlainScore(const TaskItem& item, size_t choice, Lane* lane) {
    const Tokenizer& tokenizer = (*model_)->tokenizer();
    const auto prompt = tokenizer.Encode(item.prompt.text, true, false);
    const auto whole = tokenizer.Encode(item.prompt.text + item.choices[choice], true, false);
    const size_t first =
        static_cast<size_t>(std::ranges::mismatch(prompt, whole).in2 - whole.begin());
    const auto vocabulary = static_cast<size_t>((*model_)->config().vocab_size);
    lane->Restart();
    double sum = 0;
    for (size_t at = 0; at + 1 < whole.size(); at += 100) {
      const size_t count = std::min<size_t>(100, whole.size() - 1 - at);
      const auto logits = lane->Feed(std::span(whole).subspan(at, count), StepInput::Logits::kAll);
      for (size_t i = 0; i < count; ++i) {
        if (at + i + 1 < first) continue;
        const auto row = logits.subspan(i * vocabulary, vocabulary);
        double total = 0;
        for (const float logit : row) total += std::exp(static_cast<double>(logit));
        sum += static_cast<double>(row[static_cast<size_t>(whole[at + i + 1])]) - std::log(total);
      }
    }
    const std::string& text = item.choices[choice];
    return sum / static_cast<double>(text.size() - (text.front() == ' ' ? 1 : 0));
  }

  static std::string GreedyText(const std::string& prompt, int num_tokens, Lane* lane) {
    const Tokenizer& tokenizer = (*model_)->tokenizer();
    lane->Restart();
    auto logits = lane->FeedPrompt(tokenizer.Encode(prompt, true, false));
    std::string text;
    for (int i = 0; i < num_tokens; ++i) {
      const int32_t token = Likeliest(logits);
      if (tokenizer.IsEndOfGeneration(token)) return text + "\n";  // ends a line as well
      text += tokenizer.TokenToBytes(token);
      logits = lane->Feed(std::span(&token, 1), StepInput::Logits::kLast);
    }
    return text;
  }

  // The likeliest choice of each item in a cache of that type.
  static std::vector<size_t> PlainChoices(const std::vector<TaskItem>& items, const char* dtype) {
    EvaluationOptions options;
    options.context = 2048;
    auto lane = MakeCandidateLane(*model_, {dtype, ""}, options);
    EXPECT_TRUE(lane) << lane.error().message;
    std::vector<size_t> choices;
    for (const TaskItem& item : items) {
      std::vector<double> scores;
      for (size_t i = 0; i < item.choices.size(); ++i) {
        scores.push_back(PlainScore(item, i, &*lane));
      }
      choices.push_back(static_cast<size_t>(std::ranges::max_element(scores) - scores.begin()));
    }
    return choices;
  }

  static std::shared_ptr<const Model>* model_;
};
std::shared_ptr<const Model>* TasksTest::model_ = nullptr;

TEST_F(TasksTest, ChoicesAreThoseOfOnePassOverTheText) {
  std::vector<TaskItem> items = Items();
  const std::vector<size_t> expected = PlainChoices(items, "f32"),
                            coarse = PlainChoices(items, "int2");
  ASSERT_NE(expected, coarse) << "no choice that int2 changes: the test would show nothing";
  // Right by turns, so that both verdicts are seen.
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].answer = static_cast<int>(i % 2 == 0 ? expected[i] : (expected[i] + 1) % 3);
  }
  const auto tasks = PrepareTasks(**model_, items);
  ASSERT_TRUE(tasks) << tasks.error().message;
  int64_t calls = 0;
  EvaluationOptions options;
  options.progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(done, ++calls);
    EXPECT_EQ(total, 12);
  };
  const auto reference = AnswerTasks(*model_, *tasks, nullptr, options);
  ASSERT_TRUE(reference) << reference.error().message;
  EXPECT_EQ(calls, 12);
  options.progress = {};
  const EvaluationCandidate int2 = {"int2", ""}, f32 = {"f32", ""};
  const auto found = AnswerTasks(*model_, *tasks, &int2, options);
  ASSERT_TRUE(found) << found.error().message;
  for (size_t i = 0; i < items.size(); ++i) {
    EXPECT_EQ(reference->right[i], i % 2 == 0) << i;
    EXPECT_EQ(found->right[i], coarse[i] == static_cast<size_t>(items[i].answer)) << i;
  }
  EXPECT_EQ(found->num_short, 0);
  const auto again = AnswerTasks(*model_, *tasks, &f32, options);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->right, reference->right);
}

TEST_F(TasksTest, ShortPromptsAreCounted) {
  TaskItem item = {.prompt = {.text = "ab cd", .messages = {}}, .choices = {" e", " f"}};
  const auto tasks = PrepareTasks(**model_, {Items()[0], item});
  ASSERT_TRUE(tasks);
  const auto answers = AnswerTasks(*model_, *tasks, nullptr, {});
  ASSERT_TRUE(answers);
  EXPECT_EQ(answers->num_short, 1);
}

// Of many prompts a few make random weights write a whole line.
TEST_F(TasksTest, AnExactAnswerIsTheFirstLineOfTheGreedyOne) {
  EvaluationOptions options;
  options.context = 2048;
  auto lane = MakeReferenceLane(*model_, options);
  ASSERT_TRUE(lane);
  std::mt19937 random(11);
  std::vector<TaskItem> items;
  std::vector<bool> expected;
  int num_lines = 0;
  for (int i = 0; i < 60; ++i) {
    TaskItem item = {.kind = TaskKind::kExact, .prompt = {}, .choices = {}};
    item.prompt.text = Words(10, &random);
    const std::string text = GreedyText(item.prompt.text, 150, &*lane);
    const size_t line = text.find('\n');
    item.expected = Trimmed(text.substr(0, std::min<size_t>(line, 12)));
    if (item.expected.empty()) continue;
    const bool whole = line != std::string::npos && line <= 12;
    num_lines += whole ? 1 : 0;
    items.push_back(item);
    expected.push_back(whole);
    item.expected += "x";
    items.push_back(item);
    expected.push_back(false);
  }
  ASSERT_GT(num_lines, 0);
  const auto tasks = PrepareTasks(**model_, items);
  ASSERT_TRUE(tasks) << tasks.error().message;
  const auto answers = AnswerTasks(*model_, *tasks, nullptr, {});
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_EQ(answers->right, expected);
}

TEST_F(TasksTest, Refusals) {
  TaskItem chat = {.place = "f:9", .kind = TaskKind::kExact, .prompt = {}, .choices = {}};
  chat.prompt = {.text = {}, .messages = {{"user", "Hi"}}, .is_chat = true};
  chat.expected = "x";
  const auto no_template = PrepareTasks(**model_, {chat});
  if (!(*model_)->tokenizer().has_chat_template()) EXPECT_FALSE(no_template);
  const auto tasks = PrepareTasks(**model_, Items());
  ASSERT_TRUE(tasks);
  const std::atomic<bool> stop = true;
  EvaluationOptions stopped;
  stopped.stop = &stop;
  const auto interrupted = AnswerTasks(*model_, *tasks, nullptr, stopped);
  ASSERT_FALSE(interrupted);
  EXPECT_EQ(interrupted.error().code, ErrorCode::kInterrupted);
  const EvaluationCandidate unknown = {"int9", ""};
  const auto refused = AnswerTasks(*model_, *tasks, &unknown, {});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("int9"), std::string::npos);
}

}  // namespace
}  // namespace turboquant
