#include "base/hash.h"

#include <gtest/gtest.h>

namespace turboquant {
namespace {

std::string HashOf(std::string_view a, std::string_view b) {
  Hasher hasher;
  hasher.Add(a);
  hasher.Add(b);
  return hasher.Hex();
}

TEST(Hasher, FieldsDoNotRunTogether) {
  EXPECT_EQ(HashOf("ab", "c"), HashOf("ab", "c"));
  EXPECT_NE(HashOf("ab", "c"), HashOf("a", "bc"));
  EXPECT_NE(HashOf("", "a"), HashOf("a", ""));
  EXPECT_EQ(HashOf("", "").size(), 32u);
}

// Of nothing: the constant of XXH3's specification for an empty input of 128 bits.
TEST(Hasher, IsXxh3) { EXPECT_EQ(Hasher().Hex(), "99aa06d3014798d86001c324468d497f"); }

}  // namespace
}  // namespace turboquant
