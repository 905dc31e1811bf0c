#include "attention/step_plan.h"

#include <algorithm>
#include <compare>

#include "base/check.h"

namespace turboquant {
namespace {

// Units per thread that a step should have, so that a thread whose core is taken away holds up the
// others by little.
constexpr int kUnitsPerThread = 4;
// Tiles of so few queries are bound by memory: a unit walks all KV heads, whose runs lie side by
// side in a block. Wider ones are bound by arithmetic: a unit takes one head, whose state then
// stays in the first-level cache.
constexpr int kNarrowQueries = 8;
// Rows over all heads of a narrow unit: their outputs and queries stay in the second-level cache.
constexpr int kMaxNarrowRows = 256;
// Sequences whose partial states there is room for, so that they can share blocks, even where
// threads alone would need none.
constexpr int kMaxSharingSequences = 8;

int CeilDiv(int a, int b) { return (a + b - 1) / b; }

int MaxStagingTiles(int block_size, const AttentionLimits& limits) {
  // A chunk of n >= 2 tokens stages at most ceil((n - 1) / block_size) = (n - 2) / block_size + 1
  // blocks. As a block has more than two tokens, the sum over chunks grows with their number.
  const int chunks = std::min(limits.max_num_seqs, limits.max_batch_tokens / 2);
  return (limits.max_batch_tokens - 2 * chunks) / block_size + chunks;
}

double Work(const QueryTile& tile) {
  return static_cast<double>(tile.num_queries) * (tile.own_block - tile.first_block + 1);
}

}  // namespace

StorePlan::StorePlan(int block_size, const AttentionLimits& limits)
    : block_size_(block_size),
      max_staging_tiles_(MaxStagingTiles(block_size, limits)),
      max_closed_blocks_(limits.max_batch_tokens / block_size +
                         std::min(limits.max_num_seqs, limits.max_batch_tokens)) {
  closed_.reserve(static_cast<size_t>(max_closed_blocks_));
  chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
  units_.reserve(static_cast<size_t>(limits.max_batch_tokens));  // each stores a token at least
}

void StorePlan::Build(std::span<const SequenceChunk> chunks) {
  chunks_.clear();
  units_.clear();
  closed_.clear();
  int staging_tiles = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const SequenceChunk& chunk = chunks[i];
    const int first = chunk.start / block_size_;
    const int last = (chunk.start + chunk.num_tokens - 1) / block_size_;
    chunks_.push_back({.first = first,
                       .last = last,
                       .first_staging_tile = staging_tiles,
                       .first_closed = static_cast<int>(closed_.size())});
    staging_tiles += last - first;
    const int index = static_cast<int>(i);
    for (int block = first; (block + 1) * block_size_ <= chunk.start + chunk.num_tokens; ++block) {
      closed_.push_back({.chunk = index, .block = block});
    }
    units_.push_back(
        {.chunk = index, .block = first, .tail_block = last > first ? last : kNoBlock});
    for (int block = first + 1; block < last; ++block) {
      units_.push_back({.chunk = index, .block = block});
    }
  }
  CHECK_LE(staging_tiles, max_staging_tiles_);
}

int StorePlan::StagingTile(int chunk, int block) const {
  const ChunkBlocks& blocks = chunks_[static_cast<size_t>(chunk)];
  DCHECK_GE(block, blocks.first);
  DCHECK_LE(block, blocks.last);
  return block == blocks.last ? -1 : blocks.first_staging_tile + block - blocks.first;
}

int StorePlan::ClosedIndex(int chunk, int block) const {
  const ChunkBlocks& blocks = chunks_[static_cast<size_t>(chunk)];
  return block < blocks.first ? -1 : blocks.first_closed + block - blocks.first;
}

size_t StorePlan::reserved_bytes() const {
  return closed_.capacity() * sizeof(ClosedBlock) + chunks_.capacity() * sizeof(ChunkBlocks) +
         units_.capacity() * sizeof(StoreUnit);
}

AttendPlan::AttendPlan(const LayerShape& shape, int block_size, const AttentionLimits& limits)
    : shape_(shape),
      block_size_(block_size),
      blocks_per_split_(std::max(1, kSplitTokens / block_size)),
      num_threads_(limits.max_threads) {
  const int group = shape.HeadsPerGroup();
  max_tile_queries_ = std::max(1, kMaxTileRows / group);
  const int rows_per_head = max_tile_queries_ * group;
  const bool may_share = limits.max_num_seqs > 1 && shape.sliding_window == 0;
  const int sequences = may_share ? limits.max_num_seqs : 1;
  max_unit_rows_ = std::min(static_cast<size_t>(std::max(kMaxNarrowRows, rows_per_head)),
                            static_cast<size_t>(rows_per_head) * static_cast<size_t>(sequences) *
                                static_cast<size_t>(shape.num_kv_heads));
  // Room for the partial states of as many decoding sequences of full length as can be too large
  // for one unit.
  const int max_splits = CeilDiv(limits.max_context, block_size_ * blocks_per_split_);
  const int sharing = may_share ? std::min(limits.max_num_seqs, kMaxSharingSequences) : 0;
  const int split_queries =
      std::min(std::max(num_threads_ == 1 ? 0 : kUnitsPerThread * num_threads_, sharing),
               limits.max_batch_tokens);
  const auto max_states = static_cast<size_t>(split_queries) * static_cast<size_t>(max_splits + 1);
  max_partial_rows_ = max_states * static_cast<size_t>(shape.num_heads);
  const auto max_tiles = static_cast<size_t>(limits.max_batch_tokens);
  tiles_.reserve(max_tiles);
  merge_tiles_.reserve(max_tiles);
  units_.reserve((max_tiles + max_states) * static_cast<size_t>(shape.num_kv_heads));
  if (may_share) {
    members_.reserve(max_states);
    candidates_.reserve(max_tiles);
  }
}

void AttendPlan::Build(std::span<const SequenceChunk> chunks, std::span<const BlockTable> tables) {
  tiles_.clear();
  units_.clear();
  merge_tiles_.clear();
  members_.clear();
  partial_rows_ = 0;
  for (size_t i = 0; i < chunks.size(); ++i) AddTiles(chunks, static_cast<int>(i));
  double total = 0;
  for (const QueryTile& tile : tiles_) total += Work(tile);
  const double fair_work = num_threads_ == 1 ? total : total / (kUnitsPerThread * num_threads_);
  if (chunks.size() > 1 && !tables.empty() && shape_.sliding_window == 0) ShareSplits(tables);
  // The last tile of a chunk has the most keys: largest units first, so that threads end together.
  for (size_t i = tiles_.size(); i-- > 0;) AddUnits(static_cast<int>(i), fair_work);
}

BlockTable AttendPlan::BlocksOfSplit(std::span<const BlockTable> tables, int tile,
                                     int split) const {
  const int chunk = tiles_[static_cast<size_t>(tile)].chunk;
  return tables[static_cast<size_t>(chunk)].subspan(
      static_cast<size_t>(split) * static_cast<size_t>(blocks_per_split_),
      static_cast<size_t>(blocks_per_split_));
}

// Split by split, the narrow tiles that read the same blocks are put together; a tile that finds no
// other one in a split will find none further on. Only whole splits before a tile's own block, and
// before those that it reads as copies: they are its sequence's own.
void AttendPlan::ShareSplits(std::span<const BlockTable> tables) {
  candidates_.clear();
  for (size_t i = 0; i < tiles_.size(); ++i) {
    if (tiles_[i].num_queries <= kNarrowQueries) candidates_.push_back(static_cast<int>(i));
  }
  for (int split = 0; candidates_.size() > 1; ++split) {
    std::erase_if(candidates_, [&](int tile) {
      const int last_shared = tiles_[static_cast<size_t>(tile)].own_block - shape_.recent_blocks;
      return last_shared < (split + 1) * blocks_per_split_;
    });
    std::ranges::sort(candidates_, [&](int a, int b) {
      const BlockTable left = BlocksOfSplit(tables, a, split);
      const BlockTable right = BlocksOfSplit(tables, b, split);
      const auto order = std::lexicographical_compare_three_way(left.begin(), left.end(),
                                                                right.begin(), right.end());
      return order == 0 ? a < b : order < 0;
    });
    size_t kept = 0;
    for (size_t begin = 0, end = 0; begin < candidates_.size(); begin = end) {
      const BlockTable blocks = BlocksOfSplit(tables, candidates_[begin], split);
      while (end < candidates_.size() &&
             std::ranges::equal(BlocksOfSplit(tables, candidates_[end], split), blocks)) {
        ++end;
      }
      if (end - begin < 2) continue;
      const size_t first = kept;
      for (size_t i = begin; i < end; ++i) {
        if (ReservePartialRows(candidates_[i])) candidates_[kept++] = candidates_[i];
      }
      AddSharedUnits(std::span(candidates_).subspan(first, kept - first), split);
    }
    candidates_.resize(kept);
  }
}

void AttendPlan::AddSharedUnits(std::span<const int> tiles, int split) {
  for (size_t begin = 0, end = 0; begin < tiles.size(); begin = end) {
    int rows = 0;
    for (; end < tiles.size(); ++end) {
      QueryTile& tile = tiles_[static_cast<size_t>(tiles[end])];
      if (end > begin && static_cast<size_t>(rows + RowsPerHead(tile)) > max_unit_rows_) break;
      rows += RowsPerHead(tile);
      tile.num_shared_splits = split + 1;
    }
    // The queries that a thread has prepared serve the next split too if its members are the same.
    const std::span<const int> members = tiles.subspan(begin, end - begin);
    auto first = members_.begin();
    if (members_.size() >= members.size()) {
      first = members_.end() - static_cast<std::ptrdiff_t>(members.size());
    }
    if (!std::equal(first, members_.end(), members.begin(), members.end())) {
      first = members_.insert(members_.end(), members.begin(), members.end());
    }
    const int heads = std::clamp(static_cast<int>(max_unit_rows_) / rows, 1, shape_.num_kv_heads);
    for (int head = 0; head < shape_.num_kv_heads; head += heads) {
      units_.push_back({.tile = members.front(),
                        .head_begin = head,
                        .head_end = std::min(head + heads, shape_.num_kv_heads),
                        .split = split,
                        .first_member = static_cast<int>(first - members_.begin()),
                        .num_members = static_cast<int>(members.size())});
    }
  }
}

void AttendPlan::AddTiles(std::span<const SequenceChunk> chunks, int chunk_index) {
  const SequenceChunk& chunk = chunks[static_cast<size_t>(chunk_index)];
  for (int query = 0; query < chunk.num_tokens;) {
    const int position = chunk.start + query;
    const int own_block = position / block_size_;
    const int num_queries = std::min(
        {max_tile_queries_, chunk.num_tokens - query, (own_block + 1) * block_size_ - position});
    const int first_seen =
        shape_.sliding_window > 0 ? std::max(0, position - shape_.sliding_window + 1) : 0;
    const int first_block = first_seen / block_size_;
    const int first_split = first_block / blocks_per_split_;
    tiles_.push_back({.chunk = chunk_index,
                      .first_query = query,
                      .num_queries = num_queries,
                      .first_position = position,
                      .first_block = first_block,
                      .own_block = own_block,
                      .first_split = first_split,
                      .num_splits = first_block == own_block
                                        ? 0
                                        : (own_block - 1) / blocks_per_split_ - first_split + 1});
    query += num_queries;
  }
}

int AttendPlan::HeadsPerUnit(const QueryTile& tile) const {
  if (tile.num_queries > kNarrowQueries) return 1;
  return std::clamp(kMaxNarrowRows / (tile.num_queries * shape_.HeadsPerGroup()), 1,
                    shape_.num_kv_heads);
}

// Room for the tile's partial states, which Merge puts together. False where there is none.
bool AttendPlan::ReservePartialRows(int tile_index) {
  QueryTile& tile = tiles_[static_cast<size_t>(tile_index)];
  if (tile.partial_row >= 0) return true;
  const size_t rows = static_cast<size_t>(tile.num_queries) *
                      static_cast<size_t>(tile.num_splits + 1) *
                      static_cast<size_t>(shape_.num_heads);
  if (partial_rows_ + rows > max_partial_rows_) return false;
  tile.partial_row = static_cast<std::ptrdiff_t>(partial_rows_);
  partial_rows_ += rows;
  merge_tiles_.push_back(tile_index);
  return true;
}

void AttendPlan::AddUnits(int tile_index, double fair_work) {
  QueryTile& tile = tiles_[static_cast<size_t>(tile_index)];
  int heads = HeadsPerUnit(tile);
  const double head_share = 1.0 / shape_.num_kv_heads;
  double unit_work = Work(tile) * heads * head_share;
  if (unit_work > fair_work && tile.num_splits > 0) ReservePartialRows(tile_index);
  const bool split = tile.partial_row >= 0;
  if (split) {
    const int blocks = std::min(blocks_per_split_, tile.own_block - tile.first_block);
    unit_work = static_cast<double>(tile.num_queries) * blocks * heads * head_share;
  }
  if (unit_work > fair_work) {
    heads = std::max(1, static_cast<int>(heads * fair_work / unit_work));
  }
  const int num_parts = split ? tile.num_splits + 1 : 1;
  for (int part = tile.num_shared_splits; part < num_parts; ++part) {
    for (int head = 0; head < shape_.num_kv_heads; head += heads) {
      units_.push_back({.tile = tile_index,
                        .head_begin = head,
                        .head_end = std::min(head + heads, shape_.num_kv_heads),
                        .split = split ? part : AttendUnit::kWholeTile});
    }
  }
}

size_t AttendPlan::reserved_bytes() const {
  return tiles_.capacity() * sizeof(QueryTile) + units_.capacity() * sizeof(AttendUnit) +
         (merge_tiles_.capacity() + members_.capacity() + candidates_.capacity()) * sizeof(int);
}

}  // namespace turboquant
