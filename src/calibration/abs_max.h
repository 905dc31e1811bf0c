// Static scales from observed absolute maxima: the plainest calibration there is.
#ifndef TURBOQUANT_CALIBRATION_ABS_MAX_H_
#define TURBOQUANT_CALIBRATION_ABS_MAX_H_

#include "attention/paged_attention.h"
#include "codec/kv_cache_spec.h"

namespace turboquant {

// An observer with room for every layer of the cache, all maxima 0.
KvRangeObserver MakeRangeObserver(const std::vector<KvCacheSpec>& layers);

// Scales of one layer for the static sides of `spec`: scale = max / largest code (127, 7, 448 or
// 57344), the maximum taken over what shares a scale. Where nothing but zeros was seen the scale
// is 1. Sides that are not static stay empty.
KvStaticScales AbsMaxScales(const KvRangeObserver::Layer& ranges, const KvCacheSpec& spec);

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_ABS_MAX_H_
