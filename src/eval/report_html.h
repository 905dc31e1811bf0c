// An evaluation as one page that needs nothing from elsewhere: bits against KL, KL by depth,
// errors, channel magnitudes and end codes by layer and head, and the worst tokens in their
// context.
#ifndef TURBOQUANT_EVAL_REPORT_HTML_H_
#define TURBOQUANT_EVAL_REPORT_HTML_H_

#include <cstdint>
#include <string>
#include <vector>

#include "eval/evaluation.h"
#include "model/model.h"

namespace turboquant {

struct EvaluationReport {
  const Model& model;
  const std::vector<std::vector<int32_t>>& windows;
  const std::vector<EvaluationResult>& results;
};
std::string EvaluationHtml(const EvaluationReport& report);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_REPORT_HTML_H_
