// The quality gate: limits on what a cache may cost, whether a measurement keeps them, and what to
// try where it does not.
#ifndef TURBOQUANT_EVAL_GATE_H_
#define TURBOQUANT_EVAL_GATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "eval/divergence.h"
#include "eval/evaluation.h"
#include "eval/tasks.h"

namespace turboquant {

enum class GateMeasure : uint8_t {
  kKlMean,      // "kl": mean KL divergence in nats, at most
  kKlP99,       // "kl_p99", "kl_p999": quantiles of it, at most
  kKlP999,      //
  kTop1,        // "top1": share of positions with the same likeliest token in percent, at least
  kPerplexity,  // "ppl": rise of the perplexity over the reference's in percent, at most
  kTask,        // "task": tasks lost against the reference in percentage points, at most
};
struct GateLimit {
  GateMeasure measure;
  double limit;  // in the measure's unit
};
struct Gate {
  std::vector<GateLimit> limits;  // at least one, all of which must hold
  bool NeedsTasks() const;        // a limit is on tasks
  bool NeedsText() const;         // one is on something else
};

// What was measured of a candidate.
struct GateFigures {
  const DivergenceSummary* text = nullptr;  // null only where the gate does not need it
  const TaskComparison* tasks = nullptr;    // the same
};

// "kl<=0.005,top1>=98.5,ppl<=0.5%,task<=1%" or a preset: strict, default, low-bit. kInvalidArgument
// with the place and what is known.
Result<Gate> ParseGate(std::string_view text);

// One sentence per limit that does not hold ("mean KL 0.0123 +- 0.0008 is above 0.005"); empty: it
// passes. A measurement that is not a number never passes.
std::vector<std::string> GateViolations(const Gate& gate, const GateFigures& measured);

// What may be tried instead of `refused`, cheapest first: the same formats with a dynamic scale or
// rotated, the newest tokens in int8, finer granularity, K one format up, the next formats up to
// f16. Only such with at least bits_per_value of it, and not itself.
std::vector<EvaluationCandidate> GateAlternatives(const EvaluationCandidate& refused,
                                                  double bits_per_value, int head_dim);

// The flags that select a candidate: "--kv-cache-dtype int8 --kv-scale-granularity per_group:32".
std::string ToFlags(const EvaluationCandidate& candidate);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_GATE_H_
