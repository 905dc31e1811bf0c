#include "cache/block_hash.h"

#include <xxhash.h>

#include <vector>

namespace turboquant {
namespace {

// Little-endian bytes of what is hashed.
class Bytes {
 public:
  void Add32(uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes_.push_back(static_cast<uint8_t>(value >> shift));
  }
  void Add64(uint64_t value) {
    Add32(static_cast<uint32_t>(value));
    Add32(static_cast<uint32_t>(value >> 32));
  }
  // With its length, so that neighbouring fields cannot run together.
  void AddText(std::string_view text) {
    Add64(text.size());
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  BlockHash Hash() const {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
    return {.low = hash.low64, .high = hash.high64};
  }

 private:
  std::vector<uint8_t> bytes_;
};

void AddSide(const KvSideSpec& side, Bytes* bytes) {
  // Names, not enumerator values: those may be renumbered.
  bytes->AddText(Name(side.dtype));
  bytes->AddText(Name(side.granularity));
  bytes->Add32(static_cast<uint32_t>(side.group_size));
  bytes->AddText(Name(side.transform));
}

}  // namespace

BlockHash RootHash(std::span<const KvCacheSpec> layers, int num_sink_tokens,
                   std::string_view calibration_id) {
  Bytes bytes;
  bytes.AddText("turboquant-cache-1");
  bytes.Add64(layers.size());
  for (const KvCacheSpec& spec : layers) {
    AddSide(spec.k, &bytes);
    AddSide(spec.v, &bytes);
    bytes.Add32(static_cast<uint32_t>(spec.num_kv_heads));
    bytes.Add32(static_cast<uint32_t>(spec.head_dim));
    bytes.Add32(static_cast<uint32_t>(spec.block_size));
  }
  bytes.Add32(static_cast<uint32_t>(num_sink_tokens));
  bytes.AddText(calibration_id);
  return bytes.Hash();
}

BlockHash HashBlock(const BlockHash& parent, std::span<const int32_t> tokens) {
  Bytes bytes;
  bytes.Add64(parent.low);
  bytes.Add64(parent.high);
  for (const int32_t token : tokens) bytes.Add32(static_cast<uint32_t>(token));
  return bytes.Hash();
}

}  // namespace turboquant
