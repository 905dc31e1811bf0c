#include "cache/block_hash.h"

#include "base/hash.h"

namespace turboquant {
namespace {

void AddSide(const KvSideSpec& side, Hasher* hasher) {
  // Names, not enumerator values: those may be renumbered.
  hasher->Add(Name(side.dtype));
  hasher->Add(Name(side.granularity));
  hasher->AddNumber32(static_cast<uint32_t>(side.group_size));
  hasher->Add(Name(side.transform));
  hasher->AddNumber32(side.fixed ? 1 : 0);
}

BlockHash ToBlockHash(const Hasher& hasher) {
  const Hasher::Digest digest = hasher.Value();
  return {.low = digest.low, .high = digest.high};
}

}  // namespace

BlockHash RootHash(std::span<const KvCacheSpec> layers, int num_sink_tokens, int num_recent_tokens,
                   std::string_view calibration_id) {
  Hasher hasher;
  hasher.Add("turboquant-cache-2");
  hasher.AddNumber(layers.size());
  for (const KvCacheSpec& spec : layers) {
    AddSide(spec.k, &hasher);
    AddSide(spec.v, &hasher);
    hasher.AddNumber32(static_cast<uint32_t>(spec.num_kv_heads));
    hasher.AddNumber32(static_cast<uint32_t>(spec.head_dim));
    hasher.AddNumber32(static_cast<uint32_t>(spec.block_size));
  }
  hasher.AddNumber32(static_cast<uint32_t>(num_sink_tokens));
  hasher.AddNumber32(static_cast<uint32_t>(num_recent_tokens));
  hasher.Add(calibration_id);
  return ToBlockHash(hasher);
}

BlockHash HashBlock(const BlockHash& parent, std::span<const int32_t> tokens) {
  Hasher hasher;
  hasher.AddNumber(parent.low);
  hasher.AddNumber(parent.high);
  for (const int32_t token : tokens) hasher.AddNumber32(static_cast<uint32_t>(token));
  return ToBlockHash(hasher);
}

}  // namespace turboquant
