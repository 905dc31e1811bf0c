#include "base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace turboquant {
namespace {

using ::testing::HasSubstr;

std::string Problem(std::string_view text) {
  const Status status = CheckJson(text, "f.json");
  return status ? "accepted" : status.error().message;
}

TEST(CheckJson, TakesJson) {
  EXPECT_EQ(Problem(R"({"a": [1, -2, 3.5, "x", null, true, {"a": 1}], "b": {"a": 1}})"),
            "accepted");
  EXPECT_EQ(Problem("3"), "accepted");
  EXPECT_EQ(Problem(std::string(32, '[') + std::string(32, ']')), "accepted");
}

TEST(CheckJson, NamesWhatAParserPassesOver) {
  EXPECT_THAT(Problem(R"({"b": {"a": 1, "a": 2}})"), HasSubstr("f.json: the key 'a' stands twice"));
  EXPECT_THAT(Problem(R"({"a": 1, "\u0061": 2})"), HasSubstr("the key 'a' stands twice"));
  EXPECT_THAT(Problem("{\"\\n\": 1, \"\\n\": 2}"), HasSubstr("'\\x0a'"));
  EXPECT_THAT(Problem(std::string(33, '[')), HasSubstr("deeper than 32 levels"));
  EXPECT_THAT(Problem(std::string(1000000, '[')), HasSubstr("deeper than 32 levels"));
}

TEST(CheckJson, WhatIsNoJson) {
  EXPECT_THAT(Problem(""), HasSubstr("f.json: no JSON: parse error at line 1"));
  EXPECT_THAT(Problem("{"), HasSubstr("no JSON"));
  EXPECT_THAT(Problem(R"({"a": NaN})"), HasSubstr("no JSON"));
  EXPECT_THAT(Problem(R"({"a": -Infinity})"), HasSubstr("no JSON"));
  EXPECT_THAT(Problem(R"({"a": 1e999})"), HasSubstr("no JSON: number overflow parsing '1e999'"));
  EXPECT_THAT(Problem("\xff\xfe"), HasSubstr("no JSON"));
  EXPECT_LT(Problem("\"" + std::string(100000, 'x')).size(), 300u);
}

TEST(Shown, IsOneShortLine) {
  using nlohmann::json;
  EXPECT_EQ(Shown(json(-1.5)), "-1.5");
  EXPECT_EQ(Shown(json("a\nb")), R"("a\nb")");
  EXPECT_EQ(Shown(json::array({1, 2})), "array");
  EXPECT_LT(Shown(json(std::string(1000, 'x'))).size(), 70u);
}

}  // namespace
}  // namespace turboquant
