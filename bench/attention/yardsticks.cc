#include "bench/attention/yardsticks.h"

#include <algorithm>
#include <functional>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace turboquant::bench {
namespace {

constexpr int kTries = 5;

template <bool kPrefetch>
uint64_t SumWords(const uint64_t* words, size_t count, size_t prefetch_words) {
  constexpr size_t kChains = 8;  // words of a cache line
  uint64_t sums[kChains] = {};
  for (size_t i = 0; i + kChains <= count; i += kChains) {
    if constexpr (kPrefetch) __builtin_prefetch(words + i + prefetch_words);
    for (size_t j = 0; j < kChains; ++j) sums[j] += words[i + j];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

#if defined(__x86_64__)

constexpr int kRounds = 1 << 19;
constexpr int kChains = 10;  // hides the latency of multiplication and addition

// The empty assembler statements keep the compiler from computing ahead.
__attribute__((target("avx2"))) void MultiplyIntegers() {
  __m256i sums[kChains] = {};
  __m256i a = _mm256_set1_epi16(3);
  const __m256i b = _mm256_set1_epi16(5);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 10
    for (__m256i& sum : sums) {
      asm volatile("" : "+x"(a));  // or one product would do for all sums
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
      asm volatile("" : "+x"(sum));
    }
  }
}

__attribute__((target("avx2,fma"))) void MultiplyFloats() {
  __m256 sums[kChains] = {};
  __m256 a = _mm256_set1_ps(1e-3f);
  const __m256 b = _mm256_set1_ps(1e-3f);
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 10
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(a, b, sum);
      asm volatile("" : "+x"(sum));
    }
  }
}

__attribute__((target("avx512f,avx512vnni"))) void MultiplyIntegers512() {
  __m512i sums[kChains] = {};
  const __m512i a = _mm512_set1_epi32(0x03030303), b = a;
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 10
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, a, b);
      asm volatile("" : "+v"(sum));
    }
  }
}

__attribute__((target("avx512f"))) void MultiplyFloats512() {
  __m512 sums[kChains] = {};
  const __m512 a = _mm512_set1_ps(1e-3f), b = a;
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 10
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(a, b, sum);
      asm volatile("" : "+v"(sum));
    }
  }
}

double Rate(Team& team, const std::function<void()>& loop, int products) {
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) best = std::min(best, team.Time([&](int) { loop(); }));
  return 1.0 * kRounds * kChains * products * team.size() / best;
}

#endif

}  // namespace

StreamingRead::StreamingRead(size_t bytes, Team& team) : words_(bytes / sizeof(uint64_t)) {
  std::fill_n(words_.data(), words_.size(), uint64_t{1});
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) {
    for (const size_t prefetch : {0, 256, 512, 1024}) {
      const double seconds = Read(team, prefetch);
      if (seconds < best) {
        best = seconds;
        prefetch_words_ = prefetch;
      }
    }
  }
}

double StreamingRead::Seconds(Team& team) { return Read(team, prefetch_words_); }

double StreamingRead::Read(Team& team, size_t prefetch_words) {
  const size_t part = words_.size() / static_cast<size_t>(team.size());
  return team.Time([&](int ith) {
    const uint64_t* words = words_.data() + static_cast<size_t>(ith) * part;
    sink_ += prefetch_words == 0 ? SumWords<false>(words, part, 0)
                                 : SumWords<true>(words, part, prefetch_words);
  });
}

PeakRates MeasurePeaks([[maybe_unused]] Isa isa, [[maybe_unused]] Team& team) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kScalar:
    case Isa::kNeon:
      return {};
    case Isa::kAvx2:
      return {.integer = Rate(team, MultiplyIntegers, 16),
              .floating = Rate(team, MultiplyFloats, 8)};
    case Isa::kAvx512:
      return {.integer = Rate(team, MultiplyIntegers512, 64),
              .floating = Rate(team, MultiplyFloats512, 16)};
  }
#endif
  return {};
}

}  // namespace turboquant::bench
