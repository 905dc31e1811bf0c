// Every file of make_hostile.py through the checks of Model::Load: refused, with one line that
// names what is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "model/gguf.h"
#include "model/hyperparameters.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

Status Check(const std::string& path) {
  TQ_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
  TQ_ASSIGN_OR_RETURN(const Gguf file, Gguf::Parse(mapped.bytes(), path));
  TQ_ASSIGN_OR_RETURN(const ModelConfig config, ReadHyperparameters(file));
  return CheckTensors(file, config);
}

TEST(HostileFilesTest, EachIsRefusedByName) {
  const std::string folder = TURBOQUANT_HOSTILE_FILES;
  std::ifstream list(folder + "/expected.tsv");
  ASSERT_TRUE(list) << folder << "/expected.tsv is missing: the fixture hostile_files writes it";
  int cases = 0;
  for (std::string line; std::getline(list, line); ++cases) {
    const size_t tab = line.find('\t');
    const std::string name = line.substr(0, tab), expected = line.substr(tab + 1);
    const Status status = Check(folder + "/" + name);
    if (status) {
      ADD_FAILURE() << name << " was accepted; expected: " << expected;
      continue;
    }
    const std::string& message = status.error().message;
    EXPECT_THAT(message, ::testing::HasSubstr(expected)) << name;
    EXPECT_THAT(message, ::testing::HasSubstr(name));
    EXPECT_EQ(message.find('\n'), std::string::npos) << name;
    EXPECT_LT(message.size(), 400u) << name;
  }
  EXPECT_GE(cases, 30);
}

TEST(HostileFilesTest, TheFileTheyAreMadeFromIsAccepted) {
  const Status status = Check(TURBOQUANT_GOOD_FILE);
  EXPECT_TRUE(status) << status.error().message;
}

// libllama's word splitting recurses once per character: a long word must not overflow the stack.
TEST(HostileTextTest, LongWordsAreEncoded) {
  const auto tokenizer =
      Tokenizer::Load(std::string(TURBOQUANT_HOSTILE_FILES) + "/deep-words.gguf");
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  constexpr size_t kLength = 50'000;
  for (const char c : {'1', '!', ' '}) {
    const std::string text(kLength, c);
    const std::vector<int32_t> tokens = (*tokenizer)->Encode(text, false, false);
    EXPECT_EQ((*tokenizer)->Decode(tokens), text);
  }
  EXPECT_FALSE((*tokenizer)->Encode(std::string(kLength, '\xff'), false, false).empty());
}

}  // namespace
}  // namespace turboquant
