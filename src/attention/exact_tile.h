// Exact tiles: the newest tokens of a sequence, its sinks and the staged blocks of a step, one KV
// head at a time, in the f16 or f32 block layout of codec/kv_cache_spec.h:
//   f16  K [tokens / 16][head_dim / 2][16 tokens][2 channels]   V [tokens / 2][head_dim / 16][16
//   channels][2 tokens] f32  K [tokens / 16][head_dim][16 tokens]                   V
//   [tokens][head_dim]
// Values are stored as the codecs store them: NaN as 0, what is too large as the largest finite
// number. So whatever lies in a slot is finite, and a token that a mask hides (p = 0) contributes
// exactly nothing.
#ifndef TURBOQUANT_ATTENTION_EXACT_TILE_H_
#define TURBOQUANT_ATTENTION_EXACT_TILE_H_

#include <cstddef>
#include <cstdint>

#include "codec/kv_cache_spec.h"
#include "kernels/kernel_table.h"

namespace turboquant {

// K and V lines of one KV head; borrowed.
struct ExactTile {
  KvCacheDtype dtype;  // kF16 or kF32
  int head_dim;
  uint8_t* k;
  uint8_t* v;
};

// `block` holds all KV heads of an exact tile with this spec and layout.
ExactTile ExactTileOfHead(const KvCacheSpec& spec, const KvBlockLayout& layout, uint8_t* block,
                          int head);

// Rounds one token (k, v: [head_dim]) into its slot. Other slots keep their bytes.
void WriteToken(const ExactTile& tile, int slot, const float* k, const float* v, ConvertFn to_half);

// Copies the first num_slots slots, rounded up to whole lines of 16 tokens, between tiles of the
// same format.
void CopySlots(const ExactTile& from, int num_slots, const ExactTile& to);

// One side of the first num_tokens (a multiple of 16) as row-major f32. x: [num_tokens][head_dim]
void GatherKeys(const ExactTile& tile, int num_tokens, float* x);
void GatherValues(const ExactTile& tile, int num_tokens, float* x);

}  // namespace turboquant

#endif  // TURBOQUANT_ATTENTION_EXACT_TILE_H_
