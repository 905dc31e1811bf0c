#include "engine/output_text.h"

#include <gtest/gtest.h>

namespace turboquant {
namespace {

TEST(OutputText, PassesTextThroughAtOnce) {
  OutputText text({});
  EXPECT_EQ(text.Push("Hello"), "Hello");
  EXPECT_EQ(text.Push(", world"), ", world");
  EXPECT_EQ(text.Flush(), "");
  EXPECT_FALSE(text.stopped());
}

TEST(OutputText, JoinsCharactersThatSpanTokens) {
  OutputText text({});
  EXPECT_EQ(text.Push("a\xc3"), "a");
  EXPECT_EQ(text.Push("\xa9z"), "\xc3\xa9z");
  EXPECT_EQ(text.Push("\xe2\x82"), "");
  EXPECT_NE(text.Flush(), "");
}

TEST(OutputText, CutsBeforeAStopString) {
  OutputText text({"END"});
  EXPECT_EQ(text.Push("one END two"), "one ");
  EXPECT_TRUE(text.stopped());
  EXPECT_EQ(text.Push("three"), "");
  EXPECT_EQ(text.Flush(), "");
}

TEST(OutputText, HoldsBackWhatMayBecomeAStopString) {
  OutputText text({"\n\nUser:"});
  EXPECT_EQ(text.Push("yes\n"), "yes");
  EXPECT_EQ(text.Push("\nUs"), "");
  EXPECT_FALSE(text.stopped());
  EXPECT_EQ(text.Push("ing"), "\n\nUsing");
  EXPECT_EQ(text.Push(" it\n\nUser"), " it");
  EXPECT_EQ(text.Push(": hi"), "");
  EXPECT_TRUE(text.stopped());
}

TEST(OutputText, GivesHeldTextAtTheEnd) {
  OutputText text({"STOP"});
  EXPECT_EQ(text.Push("a STO"), "a ");
  EXPECT_EQ(text.Flush(), "STO");
}

TEST(OutputText, TakesTheEarliestOfSeveralAndTheLongestHold) {
  OutputText text({"bb", "abbb"});
  EXPECT_EQ(text.Push("xab"), "x");  // "ab" may become "abbb"
  EXPECT_EQ(text.Push("b"), "a");    // "bb" it is
  EXPECT_TRUE(text.stopped());
  OutputText both({"cd", "bcd"});
  EXPECT_EQ(both.Push("abcd"), "a");
}

// A stop string that overlaps itself: the hold must not swallow the start of a later match.
TEST(OutputText, FindsAMatchThatBeginsInsideAFailedOne) {
  OutputText text({"aab"});
  std::string out;
  for (const char c : std::string("aaab!")) out += text.Push(std::string(1, c));
  EXPECT_EQ(out, "a");
  EXPECT_TRUE(text.stopped());
}

}  // namespace
}  // namespace turboquant
