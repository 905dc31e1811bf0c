// Stores one unit of a step: the new tokens of one KV head that fall into one or two blocks, and
// the codes of the blocks that they close, those of recent copies too. Units touch disjoint cache
// lines; only the counters of saturation are shared (atomically).
#ifndef TURBOQUANT_ATTENTION_KV_STORE_H_
#define TURBOQUANT_ATTENTION_KV_STORE_H_

#include <cstddef>
#include <cstdint>

#include "attention/layer_context.h"

namespace turboquant {

// New K and V of a step: [rows][num_kv_heads][head_dim], rows `stride` floats apart.
struct KvRows {
  const float* k;
  size_t k_stride;
  const float* v;
  size_t v_stride;
};

struct KvStoreArgs {
  const LayerContext* layer;
  KvRows rows;
  SequenceChunk chunk;
  StoreUnit unit;
  int head;
  PagedKvView view;
  const StorePlan* plan;
  uint8_t* staging;      // tile of unit.block (all KV heads), or null: unit.block goes to the tail
  uint8_t* recent;       // copies of the blocks that the step closes, by StorePlan::ClosedIndex
  float* scratch;        // KvStoreScratchFloats
  KvObserver* observer;  // may be null
  KvBlockObserver* block_observer;  // may be null
  const KvRecipe* recipe;           // may be null
  SaturationCounts::Layer* saturation;
};

size_t KvStoreScratchFloats(const KvCacheSpec& spec);
void StoreKvUnit(const KvStoreArgs& args);

}  // namespace turboquant

#endif  // TURBOQUANT_ATTENTION_KV_STORE_H_
