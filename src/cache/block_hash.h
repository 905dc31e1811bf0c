// Names for what a closed block holds, so that equal prefixes can share it. XXH3 with 128 bits
// (xxHash) over little-endian bytes: the same on every machine, so that a name may be written to a
// file. Not a defence against chosen collisions.
//
//   root  = H("turboquant-cache-2", every layer's spec, sink tokens, calibration id)
//   block = H(name of the block before it, or root; its tokens as u32)
#ifndef TURBOQUANT_CACHE_BLOCK_HASH_H_
#define TURBOQUANT_CACHE_BLOCK_HASH_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "cache/block_pool.h"
#include "codec/kv_cache_spec.h"

namespace turboquant {

// Parent of every first block of a cache. calibration_id names the static scales in use, "" where
// there are none.
BlockHash RootHash(std::span<const KvCacheSpec> layers, int num_sink_tokens, int num_recent_tokens,
                   std::string_view calibration_id);
// tokens: those of the block, block_size of them.
BlockHash HashBlock(const BlockHash& parent, std::span<const int32_t> tokens);

}  // namespace turboquant

#endif  // TURBOQUANT_CACHE_BLOCK_HASH_H_
