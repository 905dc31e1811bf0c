// Holds a ledger against what is really allocated: loads the model, builds the engine that the
// ledger describes, touches all of it and reads the allocator's and the system's figures.
#ifndef TURBOQUANT_ENGINE_VERIFY_PLAN_H_
#define TURBOQUANT_ENGINE_VERIFY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "planner/ledger.h"

namespace turboquant {

// One planned figure and what was found.
struct VerifiedFigure {
  std::string name;
  uint64_t planned = 0, found = 0;
  double tolerance = 0;  // share of planned; 0: must be equal
  bool ok() const;
};

struct VerifyReport {
  std::vector<VerifiedFigure> figures;
  bool ok() const;
};

// `ledger` was made from the header of `path` alone, for our engine, with `options`; it has a plan.
// Loads the model and computes a few hundred tokens: seconds. Errors of Model::Load and
// Engine::Create.
Result<VerifyReport> VerifyPlan(const std::string& path, const Ledger& ledger,
                                EngineOptions options, double tolerance);

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_VERIFY_PLAN_H_
