// Any bytes as a plan of formats by layer. Refused: with one line that begins with the name.
// Accepted: what is written of it reads back the same, and its overrides begin at layer 0.
#include <string>

#include "base/check.h"
#include "calibration/kv_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turboquant;
  const auto plan = ParseKvPlan(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!plan) {
    CHECK(plan.error().message.starts_with("fuzz: "));
    CHECK_EQ(plan.error().message.find('\n'), std::string::npos);
    CHECK_LT(plan.error().message.size(), 1000u);
    return 0;
  }
  const auto again = ParseKvPlan(ToJson(*plan), "fuzz");
  CHECK(again);
  CHECK(*again == *plan);
  CHECK(plan->ToOverrides().starts_with("0"));
  return 0;
}
