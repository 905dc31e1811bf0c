// Attention of one unit of the plan, and the merge of what units of a split tile left behind.
//
// The order in which a row meets its keys is fixed by positions alone: for every split of the tile,
// its closed blocks in order, in tiles of at most kMaxTileTokens; then the sinks; then the row's
// own block. Each split, and the exact part (sinks and own block), starts from an empty state;
// states are merged in that order.
#ifndef TURBOQUANT_ATTENTION_ATTEND_H_
#define TURBOQUANT_ATTENTION_ATTEND_H_

#include <cstddef>
#include <cstdint>

#include "attention/attention_state.h"
#include "attention/layer_context.h"

namespace turboquant {

// Memory of one thread, sized for the largest unit of any layer (AttendScratchBytes).
struct AttendScratch {
  uint8_t* prepared_q;     // [unit rows] x the larger prepared row
  float* scores;           // [kMaxTileRows][kMaxTileTokens]
  float* rotated;          // [unit rows][head_dim], queries as the cache's keys are; where they are
  AttentionState merged;   // [unit rows]
  AttentionState current;  // [unit rows]
  // Whose queries prepared_q holds, for closed blocks: format, tile (or first member and their
  // number) and first head, or -1.
  const TileFormat* prepared_format = nullptr;
  int prepared_tile = -1, prepared_head = -1, prepared_member = 0, prepared_members = 0;
};

// One layer's Attend or Merge as all its units see it.
struct AttendTask {
  const LayerContext* layer;
  const AttendPlan* plan;
  const StorePlan* store_plan;
  std::span<const SequenceChunk> chunks;
  const KvCacheManager* manager;
  const uint8_t* staging;   // exact tiles, blocks of all KV heads
  const uint8_t* recent;    // copies of the blocks that the step closes
  AttentionState partials;  // [plan->max_partial_rows()]
  const float* q;           // [rows][num_heads][head_dim], rows q_stride floats apart
  size_t q_stride;
  float* out;
  size_t out_stride;
};

void AttendOneUnit(const AttendTask& task, const AttendUnit& unit, AttendScratch* scratch);
// Merges the states of one KV head of a split tile and writes its rows of `out`. Does not read q.
// Takes over the copy of a block that this step closed into its sequence's own, unless newer blocks
// of the step need the place. After all units have attended; `closed` as in
// StorePlan::closed_blocks.
void KeepRecentCopy(const AttendTask& task, int closed);
void MergeHead(const AttendTask& task, int tile, int head, AttendScratch* scratch);

}  // namespace turboquant

#endif  // TURBOQUANT_ATTENTION_ATTEND_H_
