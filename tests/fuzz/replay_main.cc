// Main of a fuzz target outside of fuzzing: runs it on every file of the folders named, so that the
// targets are built and their seeds hold in every build. Exit status 1 where there is no file.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Of the fuzzer, for targets with a mutator of their own; nothing mutates here.
extern "C" size_t LLVMFuzzerMutate(uint8_t* /*data*/, size_t size, size_t /*max_size*/) {
  return size;
}

int main(int argc, char** argv) {
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      paths.push_back(entry.path().string());
    }
  }
  std::ranges::sort(paths);
  for (const std::string& path : paths) {
    const auto content = turboquant::ReadFile(path);
    if (!content) {
      fmt::print(stderr, "{}\n", content.error().message);
      return 1;
    }
    fmt::print("{}\n", path);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(content->data()), content->size());
  }
  return paths.empty() ? 1 : 0;
}
