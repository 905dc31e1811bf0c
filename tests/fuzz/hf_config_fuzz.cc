// Any bytes as a config.json. Refused: with one line that begins with the name. Accepted: every
// engine either refuses the model or has a cache whose bytes never fall as contexts or sequences
// grow.
#include <array>
#include <string>

#include "base/check.h"
#include "planner/cache_profile.h"
#include "planner/hf_config.h"

namespace turboquant {
namespace {

void CheckMessage(const Error& error) {
  CHECK(!error.message.empty());
  CHECK_EQ(error.message.find('\n'), std::string::npos);
  CHECK_LT(error.message.size(), 1000u);
}

void CheckProfile(const ModelShape& shape, EngineKind engine) {
  const auto profile = MakeCacheProfile(
      shape, {.engine = engine,
              .cache = {.kv_cache_dtype = std::string(DefaultFormat(engine)), .block_size = 64}});
  if (!profile) return CheckMessage(profile.error());
  constexpr std::array<int64_t, 6> kSizes = {1, 63, 64, 4096, int64_t{1} << 30, int64_t{1} << 40};
  for (size_t i = 0; i + 1 < kSizes.size(); ++i) {
    for (const int64_t other : kSizes) {
      const uint64_t bytes = (*profile)->Bytes(kSizes[i], other).total();
      if (i + 2 < kSizes.size()) CHECK_LE(bytes, (*profile)->Bytes(kSizes[i + 1], other).total());
    }
    CHECK_LE((*profile)->Bytes(64, kSizes[i]).total(),
             (*profile)->Bytes(64, kSizes[i + 1]).total());
  }
}

}  // namespace
}  // namespace turboquant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turboquant;
  const auto shape = ReadHfConfig({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!shape) {
    CHECK(shape.error().message.starts_with("fuzz"));
    CheckMessage(shape.error());
    return 0;
  }
  CHECK(!shape->layers.empty());
  for (const EngineKind engine :
       {EngineKind::kTurboquant, EngineKind::kLlamaCpp, EngineKind::kVllm})
    CheckProfile(*shape, engine);
  return 0;
}
