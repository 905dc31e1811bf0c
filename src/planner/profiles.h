// The engines behind MakeCacheProfile, one file each. Only for planner/.
#ifndef TURBOQUANT_PLANNER_PROFILES_H_
#define TURBOQUANT_PLANNER_PROFILES_H_

#include "planner/cache_profile.h"

namespace turboquant {

using ProfileResult = Result<std::unique_ptr<const CacheProfile>>;

ProfileResult MakeTurboquantProfile(const ModelShape& model, const ProfileOptions& options);
ProfileResult MakeLlamaCppProfile(const ModelShape& model, const ProfileOptions& options);
ProfileResult MakeVllmProfile(const ModelShape& model, const ProfileOptions& options);

// "layer 3 (latent)": for messages.
std::string LayerText(size_t layer, LayerKind kind);

// `tokens` tokens of a layer in an area for `slots` of them.
CacheBytes BytesOfSlots(const LayerLedger& layer, uint64_t tokens, uint64_t slots);

// Adds part by part, saturating.
void AddTo(const CacheBytes& part, CacheBytes* sum);
CacheBytes Times(const CacheBytes& bytes, uint64_t count);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_PROFILES_H_
