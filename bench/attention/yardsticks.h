// What the machine can do at best, measured by the same threads in the same run: the denominators
// of the attention bench.
#ifndef TURBOQUANT_BENCH_ATTENTION_YARDSTICKS_H_
#define TURBOQUANT_BENCH_ATTENTION_YARDSTICKS_H_

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "bench/attention/team.h"
#include "kernels/cpu_features.h"

namespace turboquant::bench {

// Streaming read: every thread reads its own part of a buffer from front to end. Of several ways to
// read (with and without software prefetch) the one that is fastest here.
class StreamingRead {
 public:
  StreamingRead(size_t bytes, Team& team);
  double Seconds(Team& team);
  size_t bytes() const { return words_.size() * sizeof(uint64_t); }

 private:
  double Read(Team& team, size_t prefetch_words);
  AlignedBuffer<uint64_t> words_;
  size_t prefetch_words_ = 0;
  std::atomic<uint64_t> sink_{0};
};

// Multiply-adds per second from registers, all threads, best of several tries.
//   integer: AVX2 vpmaddwd and vpaddd (16 products each pair), AVX-512 vpdpbusd (64 products)
//   float:   FMA, 8 or 16 products
// 0 where the instruction set is not here.
struct PeakRates {
  double integer = 0, floating = 0;
};
PeakRates MeasurePeaks(Isa isa, Team& team);

}  // namespace turboquant::bench

#endif  // TURBOQUANT_BENCH_ATTENTION_YARDSTICKS_H_
