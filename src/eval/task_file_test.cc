#include "eval/task_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace turboquant {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(TaskFile, ReadsBothKinds) {
  const auto items = ParseTasks(
      "{\"type\": \"choice\", \"prompt\": \"Q\", \"choices\": [\" a\", \"b\"], \"answer\": 1}\n"
      " \r\n"
      "{\"type\": \"exact\", \"text\": \"2 + 2 =\", \"answer\": \" 4 \", \"source\": \"me\"}\r\n"
      "{\"type\": \"exact\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
      "\"answer\": \"yes\"}",
      "f");
  ASSERT_TRUE(items) << items.error().message;
  ASSERT_EQ(items->size(), 3u);
  EXPECT_EQ((*items)[0].kind, TaskKind::kChoice);
  EXPECT_EQ((*items)[0].prompt.text, "Q");
  EXPECT_THAT((*items)[0].choices, ElementsAre(" a", "b"));
  EXPECT_EQ((*items)[0].answer, 1);
  EXPECT_EQ((*items)[1].kind, TaskKind::kExact);
  EXPECT_EQ((*items)[1].place, "f:3");
  EXPECT_EQ((*items)[1].prompt.text, "2 + 2 =");
  EXPECT_EQ((*items)[1].expected, "4");
  EXPECT_TRUE((*items)[2].prompt.is_chat);
  EXPECT_EQ((*items)[2].prompt.messages, (std::vector<ChatMessage>{{"user", "Hi"}}));
}

TEST(TaskFile, RefusesWithTheLine) {
  constexpr const char* kChoice = R"({"type": "choice", "prompt": "Q", "choices": )";
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"nonsense", "no JSON"},
      {"[1, 2]", "want one JSON object"},
      {"{\"type\": 1e999}", "no JSON"},
      {"{\"type\": \"exact\", \"type\": \"choice\"}", "stands twice"},
      {"{\"type\": \"exact\", \"x\": " + deep + "}", "deeper"},
      {"{\"prompt\": \"Q\"}", "\"type\" is missing"},
      {R"({"type": "essay", "prompt": "Q"})", "\"type\" is \"essay\": want \"choice\" or"},
      {R"({"type": "exact", "answer": "4"})", "\"prompt\", \"text\" or \"messages\""},
      {R"({"type": "exact", "prompt": "Q"})", "\"answer\" is missing"},
      {R"({"type": "exact", "prompt": "Q", "answer": 4})", "\"answer\" is 4: want a text"},
      {R"({"type": "exact", "prompt": "Q", "answer": " "})", "single line"},
      {R"({"type": "exact", "prompt": "Q", "answer": "a\nb"})", "single line"},
      {R"({"type": "exact", "messages": [{"role": "user"}], "answer": "a"})", "\"content\""},
      {std::string(kChoice) + R"(["a"], "answer": 0})", "at least two"},
      {std::string(kChoice) + R"("ab", "answer": 0})", "at least two"},
      {std::string(kChoice) + R"(["a", 3], "answer": 0})", "a choice is 3"},
      {std::string(kChoice) + R"(["a", " "], "answer": 0})", "not blank"},
      {std::string(kChoice) + R"(["a", "b"]})", "\"answer\" is missing"},
      {std::string(kChoice) + R"(["a", "b"], "answer": 2})", "index of a choice, 0 to 1"},
      {std::string(kChoice) + R"(["a", "b"], "answer": -1})", "\"answer\" is -1"},
      {std::string(kChoice) + R"(["a", "b"], "answer": 0.5})", "\"answer\" is 0.5"},
      {std::string(kChoice) + R"(["a", "b"], "answer": 18446744073709551615})", "index"},
      {std::string(kChoice) + R"(["a", "b"], "answer": "a"})", "\"answer\" is \"a\""},
      {"{\"type\": \"exact\xff\"}", "no JSON"}};
  for (const auto& [line, part] : cases) {
    const auto items = ParseTasks(
        "{\"type\": \"exact\", \"prompt\": \"Q\", \"answer\": \"a\"}\n\n" + line + "\n", "f");
    ASSERT_FALSE(items) << line;
    EXPECT_EQ(items.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(items.error().message, StartsWith("f:3: "));
    EXPECT_THAT(items.error().message, HasSubstr(part)) << line;
  }
  for (const char* empty : {"", "\n \n"}) {
    const auto items = ParseTasks(empty, "f");
    ASSERT_FALSE(items);
    EXPECT_EQ(items.error().message, "f: holds no task");
  }
}

}  // namespace
}  // namespace turboquant
