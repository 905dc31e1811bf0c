// The ledger for people and for programs.
#ifndef TURBOQUANT_PLANNER_REPORT_H_
#define TURBOQUANT_PLANNER_REPORT_H_

#include <string>
#include <vector>

#include "planner/answers.h"
#include "planner/ledger.h"

namespace turboquant {

// Read bandwidth that the roofline is drawn with; 0 where none is known.
struct Bandwidth {
  double bytes_per_second = 0;
  Origin origin = Origin::kMeasured;
};

struct PlanReport {
  const Ledger& ledger;
  const Answers& answers;
  Bandwidth bandwidth = {};
};

// The table of every line with its sum, as `plan` and the log at start show it; lines without their
// ends.
std::vector<std::string> LedgerTable(const Ledger& ledger);

// "27 sequences", "1 sequence".
std::string Count(int64_t number, const std::string& noun);

// Neighbouring layers that are alike: [first, end).
struct LayerRun {
  size_t first, end;
  std::string Range() const;  // "3" or "0-29"
};
std::vector<LayerRun> LayerRuns(const std::vector<LayerLedger>& layers);

// All that `plan` prints; each ends with a line feed. The JSON is of schema "turboquant.plan/1"
// (docs/formats/plan.md); the page needs nothing from elsewhere.
std::string PlanText(const PlanReport& report);
std::string PlanJson(const PlanReport& report);
std::string PlanHtml(const PlanReport& report);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_REPORT_H_
