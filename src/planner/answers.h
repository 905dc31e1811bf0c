// What people ask a ledger: how long, how many, what would fit, and how fast at best. Every answer
// is found by making ledgers: what is said to fit has been tried.
#ifndef TURBOQUANT_PLANNER_ANSWERS_H_
#define TURBOQUANT_PLANNER_ANSWERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "planner/ledger.h"

namespace turboquant {

// A change under which everything fits; flags replace those of the same name.
struct Change {
  std::string flags;  // "--kv-cache-dtype int4"
  LedgerOptions options;
  uint64_t total_bytes = 0;
  uint64_t limit_bytes = 0;
};

struct GridCell {
  std::string format;
  int context = 0, num_seqs = 0;  // tokens per sequence, sequences
  uint64_t cache_bytes = 0;
  bool fits = false;
};

struct Answers {
  int64_t max_context = 0;      // for the ledger's number of sequences; 0: not one token
  int64_t max_sequences = 0;    // of the ledger's context; 0: not one
  std::vector<Change> changes;  // cheapest first; empty where the ledger fits
  // Per format, the most sequences at each context.
  struct Capacity {
    std::string format;
    double bits_per_value = 0;
    std::vector<int64_t> max_sequences;  // one per context of the grid
  };
  std::vector<int> contexts;
  std::vector<int> sequences;
  std::vector<Capacity> capacities;
  std::vector<GridCell> grid;  // format by format, context by context
};

// Errors of Make for the options as they are; candidates that an engine refuses are passed over.
Result<Answers> Answer(const LedgerSource& source, const LedgerOptions& options);

// Upper bound on decode speed by memory traffic: weights once per step, the cache of every
// sequence.
struct RooflinePoint {
  int depth = 0;                               // tokens in the cache of each sequence
  uint64_t weight_bytes = 0, cache_bytes = 0;  // read per step
  double tokens_per_second = 0;                // all sequences together
};
// bytes_per_second > 0.
std::vector<RooflinePoint> Roofline(const Ledger& ledger, double bytes_per_second);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_ANSWERS_H_
