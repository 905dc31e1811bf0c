#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "model/tokenizer.h"

namespace turboquant {
namespace {

constexpr std::string_view kMark = "\xEF\xBF\xBD";

std::string Replaced(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Push(bytes);
  return text + stream.Flush();
}

TEST(Utf8Stream, CharactersCutAtEveryPlaceArriveWhole) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";  // 1, 2, 3 and 4 bytes
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Utf8Stream stream;
    const std::string head = stream.Push(text.substr(0, cut));
    EXPECT_EQ(head, text.substr(0, head.size()));
    EXPECT_EQ(head + stream.Push(text.substr(cut)), text) << cut;
    EXPECT_EQ(stream.Flush(), "");
  }
}

TEST(Utf8Stream, BytesOneByOneComeOutWithTheirLastByte) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xF0"), "");
  EXPECT_EQ(stream.Push("\x9F"), "");
  EXPECT_EQ(stream.Push("\x98"), "");
  EXPECT_EQ(stream.Push("\x80"), "\xF0\x9F\x98\x80");
}

TEST(Utf8Stream, AnIncompleteCharacterIsMarkedAtTheEnd) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("ok\xE2\x82"), "ok");
  EXPECT_EQ(stream.Flush(), kMark);
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(stream.Push("b"), "b");
}

// One mark per maximal subpart, as the Unicode standard recommends (chapter 3, table 3-8 to 3-11).
TEST(Utf8Stream, BadBytesAreMarkedAndTheRestGoesOn) {
  const std::string mark(kMark);
  EXPECT_EQ(Replaced("a\x80z"), "a" + mark + "z");                     // lone continuation
  EXPECT_EQ(Replaced("\xC0\xAF"), mark + mark);                        // overlong
  EXPECT_EQ(Replaced("\xE0\x9F\x80"), mark + mark + mark);             // overlong of three
  EXPECT_EQ(Replaced("\xED\xA0\x80"), mark + mark + mark);             // surrogate
  EXPECT_EQ(Replaced("\xF4\x90\x80\x80"), mark + mark + mark + mark);  // above U+10FFFF
  EXPECT_EQ(Replaced("\xE2\x82"
                     "A"),
            mark + "A");  // cut short by ASCII
  EXPECT_EQ(Replaced("\xF0\x9F\x98"
                     "\xC3\xA9"),
            mark + "\xC3\xA9");  // cut short by another lead
  EXPECT_EQ(Replaced("\xFF"), mark);
}

TEST(Utf8Stream, EverythingThatComesOutIsValid) {
  // Each pair of bytes, then a letter: what comes out must decode without a mark when it goes in
  // again.
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string bytes = {static_cast<char>(a), static_cast<char>(b), 'x'};
      const std::string text = Replaced(bytes);
      ASSERT_EQ(Replaced(text), text) << a << " " << b;
      ASSERT_EQ(text.back(), 'x');
    }
  }
}

}  // namespace
}  // namespace turboquant
