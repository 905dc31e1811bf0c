// Whole files and mapped files.
#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/mapped_file.h"

namespace turboquant {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "turboquant_file_test.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Path(const std::string& name) const { return (dir_ / name).string(); }
  size_t NumFiles() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir_)) ++count;
    return count;
  }

  std::filesystem::path dir_;
};

TEST_F(FileTest, WriteThenReadAndMap) {
  std::string content = "one\ntwo";
  content.push_back('\0');
  content += std::string(100000, 'x');
  ASSERT_TRUE(WriteFileAtomically(Path("a"), content));
  EXPECT_EQ(*ReadFile(Path("a")), content);
  auto mapped = MappedFile::Open(Path("a"));
  ASSERT_TRUE(mapped);
  EXPECT_EQ(std::string(mapped->bytes().begin(), mapped->bytes().end()), content);
  MappedFile moved = std::move(*mapped);
  EXPECT_EQ(moved.bytes().size(), content.size());
  EXPECT_EQ(moved.path(), Path("a"));
  EXPECT_TRUE(mapped->bytes().empty());  // NOLINT(bugprone-use-after-move)
}

TEST_F(FileTest, ReplacesAndLeavesNothingBehind) {
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "old"));
  ASSERT_TRUE(WriteFileAtomically(Path("a"), "new"));
  EXPECT_EQ(*ReadFile(Path("a")), "new");
  EXPECT_EQ(NumFiles(), 1u);
  struct stat info = {};
  ASSERT_EQ(::stat(Path("a").c_str(), &info), 0);
  EXPECT_NE(info.st_mode & S_IRUSR, 0u);
  EXPECT_EQ(info.st_mode & S_IXUSR, 0u);
}

TEST_F(FileTest, FailedWriteKeepsTheOldState) {
  std::filesystem::create_directory(dir_ / "sub");
  const Status onto_directory = WriteFileAtomically(Path("sub"), "x");
  ASSERT_FALSE(onto_directory);
  EXPECT_EQ(onto_directory.error().code, ErrorCode::kIo);
  EXPECT_EQ(NumFiles(), 1u);
  EXPECT_TRUE(std::filesystem::is_directory(dir_ / "sub"));
  const Status no_directory = WriteFileAtomically(Path("missing/a"), "x");
  ASSERT_FALSE(no_directory);
  EXPECT_EQ(no_directory.error().code, ErrorCode::kNotFound);
}

TEST_F(FileTest, ErrorsSayWhatIsWrong) {
  for (const auto& [path, code] :
       {std::pair{Path("nothing"), ErrorCode::kNotFound},
        std::pair{dir_.string(), ErrorCode::kInvalidArgument},
        std::pair{std::string("/dev/null"), ErrorCode::kInvalidArgument}}) {
    const auto mapped = MappedFile::Open(path);
    ASSERT_FALSE(mapped) << path;
    EXPECT_EQ(mapped.error().code, code) << path;
    EXPECT_NE(mapped.error().message.find(path), std::string::npos);
    EXPECT_EQ(ReadFile(path).error().code, code) << path;
  }
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(Path("pipe")).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(FileTest, EmptyFile) {
  ASSERT_TRUE(WriteFileAtomically(Path("empty"), ""));
  EXPECT_EQ(*ReadFile(Path("empty")), "");
  EXPECT_TRUE(MappedFile::Open(Path("empty"))->bytes().empty());
}

}  // namespace
}  // namespace turboquant
