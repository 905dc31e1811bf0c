// How the work of one step is cut into units that threads take from a counter. Integers only: which
// unit computes a number never changes the number (docs/design/attention.md), so the cut may follow
// load and thread count freely.
#ifndef TURBOQUANT_ATTENTION_STEP_PLAN_H_
#define TURBOQUANT_ATTENTION_STEP_PLAN_H_

#include <cstddef>
#include <span>
#include <vector>

#include "attention/paged_attention.h"
#include "cache/block_pool.h"

namespace turboquant {

inline constexpr int kNoBlock = -1;

// Blocks of one chunk that one thread stores, for one KV head. `block` comes first. `tail_block` is
// the chunk's last block where it is another one: it goes to the tail, after `block` has taken over
// what the tail held.
struct StoreUnit {
  int chunk;
  int block;
  int tail_block = kNoBlock;
};

// A block that a step fills.
struct ClosedBlock {
  int chunk;
  int block;
};

// Where the tokens of a step go. All layers share it.
class StorePlan {
 public:
  StorePlan(int block_size, const AttentionLimits& limits);
  void Build(std::span<const SequenceChunk> chunks);

  std::span<const StoreUnit> units() const { return units_; }
  // Index of the staging tile that holds this block exactly in this step, or -1: the sequence's
  // tail does.
  int StagingTile(int chunk, int block) const;
  // Most staging tiles that a step within the limits can need.
  int max_staging_tiles() const { return max_staging_tiles_; }
  // Those of a chunk follow each other in the order of its blocks.
  std::span<const ClosedBlock> closed_blocks() const { return closed_; }
  // Index in closed_blocks of a block that this step closes; -1: it was closed before.
  int ClosedIndex(int chunk, int block) const;
  int max_closed_blocks() const { return max_closed_blocks_; }
  size_t reserved_bytes() const;

 private:
  struct ChunkBlocks {
    int first, last;         // blocks that the chunk's tokens fall into
    int first_staging_tile;  // of `first`; block last - 1 has the chunk's last one
    int first_closed;        // index of `first`
  };
  int block_size_;
  int max_staging_tiles_, max_closed_blocks_;
  std::vector<ChunkBlocks> chunks_;
  std::vector<ClosedBlock> closed_;
  std::vector<StoreUnit> units_;
};

// What the cut of attention depends on; layers that agree in it share an AttendPlan.
struct LayerShape {
  int num_heads;
  int num_kv_heads;
  int head_dim;
  int sliding_window;
  int recent_blocks = 0;  // newest closed blocks, before a query's own, that are read as copies

  int HeadsPerGroup() const { return num_heads / num_kv_heads; }
  bool operator==(const LayerShape&) const = default;
};

// Consecutive queries of a chunk that lie in one block, so that the same closed blocks come before
// all of them.
struct QueryTile {
  int chunk;
  int first_query;  // index in the chunk
  int num_queries;
  int first_position;  // of first_query
  int first_block;     // first block that any of the queries sees
  int own_block;       // blocks [first_block, own_block) are read as codes
  int first_split;
  int num_splits;             // splits that these blocks fall into
  int num_shared_splits = 0;  // the first of them, which units of several tiles work on
  std::ptrdiff_t partial_row =
      -1;  // first row of the stored partial states, or -1: merged by the unit itself
};

// Work of one thread: the query heads of KV heads [head_begin, head_end) of a tile, or of several
// tiles that read the same blocks in this split: those are then read once for all of them.
struct AttendUnit {
  static constexpr int kWholeTile = -1;
  int tile;  // the first one
  int head_begin, head_end;
  int split;  // kWholeTile; or s < num_splits: the tile's split s; or num_splits: its exact tile
  // Tiles of a shared split: num_members from AttendPlan::members()[first_member]; 1: `tile` alone.
  int first_member = 0, num_members = 1;
};

// Closed blocks of one chunk's sequence. Ids are the same in all layers.
using BlockTable = std::span<const BlockId>;

class AttendPlan {
 public:
  AttendPlan(const LayerShape& shape, int block_size, const AttentionLimits& limits);
  // tables: one per chunk; splits whose blocks several sequences have in common become shared
  // units. Empty: nothing is shared.
  void Build(std::span<const SequenceChunk> chunks, std::span<const BlockTable> tables = {});

  const LayerShape& shape() const { return shape_; }
  std::span<const QueryTile> tiles() const { return tiles_; }
  std::span<const AttendUnit> units() const { return units_; }
  std::span<const int> members() const { return members_; }  // tiles of shared units
  std::span<const int> merge_tiles() const {
    return merge_tiles_;
  }  // tiles with stored partial states
  int blocks_per_split() const { return blocks_per_split_; }

  // Rows of stored partial states. A tile's rows: [num_splits + 1][num_kv_heads][num_queries][heads
  // per group].
  size_t max_partial_rows() const { return max_partial_rows_; }
  // Most rows, over its heads, that one unit works on.
  size_t max_unit_rows() const { return max_unit_rows_; }
  size_t reserved_bytes() const;

 private:
  void AddTiles(std::span<const SequenceChunk> chunks, int chunk);
  void AddUnits(int tile, double fair_work);
  bool ReservePartialRows(int tile);
  int HeadsPerUnit(const QueryTile& tile) const;
  int RowsPerHead(const QueryTile& tile) const { return tile.num_queries * shape_.HeadsPerGroup(); }
  void ShareSplits(std::span<const BlockTable> tables);
  BlockTable BlocksOfSplit(std::span<const BlockTable> tables, int tile, int split) const;
  void AddSharedUnits(std::span<const int> tiles, int split);

  LayerShape shape_;
  int block_size_, blocks_per_split_, num_threads_;
  int max_tile_queries_;
  size_t max_partial_rows_, max_unit_rows_;
  std::vector<QueryTile> tiles_;
  std::vector<AttendUnit> units_;
  std::vector<int> merge_tiles_;
  std::vector<int> members_;
  std::vector<int> candidates_;  // of ShareSplits
  size_t partial_rows_ = 0;      // given to tiles of this step
};

}  // namespace turboquant

#endif  // TURBOQUANT_ATTENTION_STEP_PLAN_H_
