// Pictures of keys and values by layer and KV head, as parts of a page (eval/report_html.h).
#ifndef TURBOQUANT_EVAL_KV_MAPS_H_
#define TURBOQUANT_EVAL_KV_MAPS_H_

#include <string>

#include "attention/saturation.h"
#include "eval/kv_errors.h"

namespace turboquant {

// Relative error of what is stored.
std::string ErrorMap(const KvErrors& errors);
// The largest magnitude per channel, before and after the transform.
std::string ChannelMaps(const KvErrors& errors);
// Share of codes at the ends of the range.
std::string SaturationMap(const SaturationCounts& counts);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_KV_MAPS_H_
