// Formats by layer: which layers' keys and values deserve more bits, measured on the model, and
// whether that beats one format for all.
//
//   1. Sensitivity: the KL of the model with one side of one layer in a probe format and everything
//      else in f16, for every layer, K and V apart.
//   2. Weight of a format: the KL of all keys (or values) in it over the same in the probe format.
//   3. Allocation: a layer's side in format f is expected to cost sensitivity x weight(f). From the
//      cheapest formats on, the upgrade that saves most per bit is taken until the budget is spent.
//   4. Verdict: the allocation, the best uniform formats and the folk rules that fit the budget are
//      measured end to end; the one with the least KL is the result. Sums of step 3 do not hold
//      well at few bits, so only this step decides.
#ifndef TURBOQUANT_EVAL_TUNING_H_
#define TURBOQUANT_EVAL_TUNING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "eval/evaluation.h"
#include "model/model.h"

namespace turboquant {

struct SideCosts {
  std::vector<double> k, v;
};

struct TuningOptions {
  // One of these, the other 0: bits per value of closed blocks that a plan may have; mean KL in
  // nats that the plan with fewest bits must keep on these windows.
  double budget_bits = 0, max_kl = 0;
  // Formats to choose from, one for a side, ascending in bits; at least two.
  std::vector<std::string> formats = {"int3", "int4", "int5", "int6", "int8"};
  std::string probe = "int4";  // one of them
  // The one of them below which no layer's V goes in an allocation; empty: the first. Few bits for
  // V cost more at depth than short windows show (docs/decisions/007-formats-by-layer.md).
  std::string least_v;
  EvaluationOptions evaluation;  // candidates and cache formats of it are not used
  // What an earlier call found with the same model, windows, formats and probe: used, and not
  // measured again. Not owned; null = measure.
  const struct Tuning* earlier = nullptr;
};

// Formats of all layers with what they were measured to cost.
struct MeasuredPlan {
  std::string name;                 // "by sensitivity", "uniform int6/int4", "first and last 2 ..."
  std::vector<std::string> layers;  // [num_layers], "int6/int4"
  EvaluationResult result;
};

struct Tuning {
  SideCosts sensitivities;          // [num_layers], KL in nats
  SideCosts weights;                // [formats]
  std::vector<MeasuredPlan> plans;  // least KL first; the first one is the result
};

// kInvalidArgument: no plan of these formats has so few bits, or formats that are none or not in
// order.
Result<Tuning> Tune(const std::shared_ptr<const Model>& model,
                    const std::vector<std::vector<int32_t>>& windows, const TuningOptions& options);

// What Tune will run for a budget of bits, in tokens through caches: an upper bound. The search for
// a KL may measure more budgets.
int64_t TuningTokens(int num_layers, size_t num_formats, int64_t window_tokens);

// Step 3 by itself, for one budget. bits: of one value in each format.
struct AllocationInput {
  const SideCosts& sensitivities;
  const SideCosts& weights;
  const std::vector<double>& bits;
  size_t least_v = 0;  // index of the format that V starts from
};
struct Allocation {
  std::vector<size_t> k, v;  // [num_layers], index of the format
};
// The cheapest formats that are allowed may be over the budget: then they are the allocation.
Allocation Allocate(const AllocationInput& input, double budget_bits);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_TUNING_H_
