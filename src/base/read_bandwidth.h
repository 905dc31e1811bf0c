// How fast this machine reads memory with so many threads: the yardstick that attention speed is
// stated against.
#ifndef TURBOQUANT_BASE_READ_BANDWIDTH_H_
#define TURBOQUANT_BASE_READ_BANDWIDTH_H_

#include <cstddef>

namespace turboquant {

// Bytes per second of a plain streaming read: `num_threads` threads, each over its own part of
// `bytes` (which should be several times the last-level cache), best of `repetitions`. Allocates
// `bytes`; takes tens of milliseconds.
double MeasureReadBandwidth(int num_threads, size_t bytes, int repetitions);

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_READ_BANDWIDTH_H_
