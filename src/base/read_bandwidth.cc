#include "base/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"

namespace turboquant {
namespace {

uint64_t Sum(const uint64_t* data, size_t count) {
  constexpr size_t kChains = 8;
  constexpr size_t kPrefetchWords = 512;
  uint64_t sums[kChains] = {};
  for (size_t i = 0; i + kChains <= count; i += kChains) {
    __builtin_prefetch(data + i + kPrefetchWords);
    for (size_t j = 0; j < kChains; ++j) sums[j] += data[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

double MeasureReadBandwidth(int num_threads, size_t bytes, int repetitions) {
  const size_t words = bytes / sizeof(uint64_t) / static_cast<size_t>(num_threads);
  AlignedBuffer<uint64_t> buffer(words * static_cast<size_t>(num_threads));
  std::fill_n(buffer.data(), buffer.size(), uint64_t{1});
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::jthread> threads;
    for (int t = 0; t < num_threads; ++t) {
      threads.emplace_back(
          [&, t] { sink += Sum(buffer.data() + words * static_cast<size_t>(t), words); });
    }
    threads.clear();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(buffer.size() * sizeof(uint64_t)) / seconds.count());
  }
  return best;
}

}  // namespace turboquant
