#include "attention/step_plan.h"

#include <algorithm>

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
    : block_size_(block_size), max_staging_tiles_(MaxStagingTiles(block_size, limits)) {
  chunks_.reserve(static_cast<size_t>(limits.max_num_seqs));
  units_.reserve(static_cast<size_t>(limits.max_batch_tokens));  // each stores a token at least
}

void StorePlan::Build(std::span<const SequenceChunk> chunks) {
  chunks_.clear();
  units_.clear();
  int staging_tiles = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const SequenceChunk& chunk = chunks[i];
    const int first = chunk.start / block_size_;
    const int last = (chunk.start + chunk.num_tokens - 1) / block_size_;
    chunks_.push_back({.first = first, .last = last, .first_staging_tile = staging_tiles});
    staging_tiles += last - first;
    const int index = static_cast<int>(i);
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

size_t StorePlan::reserved_bytes() const {
  return chunks_.capacity() * sizeof(ChunkBlocks) + units_.capacity() * sizeof(StoreUnit);
}

AttendPlan::AttendPlan(const LayerShape& shape, int block_size, const AttentionLimits& limits)
    : shape_(shape),
      block_size_(block_size),
      blocks_per_split_(std::max(1, kSplitTokens / block_size)),
      num_threads_(limits.max_threads) {
  const int group = shape.HeadsPerGroup();
  max_tile_queries_ = std::max(1, kMaxTileRows / group);
  const int rows_per_head = max_tile_queries_ * group;
  max_unit_rows_ = static_cast<size_t>(
      std::min(std::max(kMaxNarrowRows, rows_per_head), rows_per_head * shape.num_kv_heads));
  // Room for the partial states of as many decoding sequences of full length as can be too large
  // for one unit.
  const int max_splits = CeilDiv(limits.max_context, block_size_ * blocks_per_split_);
  const int split_queries =
      num_threads_ == 1 ? 0 : std::min(kUnitsPerThread * num_threads_, limits.max_batch_tokens);
  const auto max_states = static_cast<size_t>(split_queries) * static_cast<size_t>(max_splits + 1);
  max_partial_rows_ = max_states * static_cast<size_t>(shape.num_heads);
  const auto max_tiles = static_cast<size_t>(limits.max_batch_tokens);
  tiles_.reserve(max_tiles);
  merge_tiles_.reserve(max_tiles);
  units_.reserve((max_tiles + max_states) * static_cast<size_t>(shape.num_kv_heads));
}

void AttendPlan::Build(std::span<const SequenceChunk> chunks) {
  tiles_.clear();
  units_.clear();
  merge_tiles_.clear();
  for (size_t i = 0; i < chunks.size(); ++i) AddTiles(chunks, static_cast<int>(i));
  double total = 0;
  for (const QueryTile& tile : tiles_) total += Work(tile);
  const double fair_work = num_threads_ == 1 ? total : total / (kUnitsPerThread * num_threads_);
  size_t partial_rows = 0;
  // The last tile of a chunk has the most keys: largest units first, so that threads end together.
  for (size_t i = tiles_.size(); i-- > 0;) AddUnits(static_cast<int>(i), fair_work, &partial_rows);
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

void AttendPlan::AddUnits(int tile_index, double fair_work, size_t* partial_rows) {
  QueryTile& tile = tiles_[static_cast<size_t>(tile_index)];
  int heads = HeadsPerUnit(tile);
  const double head_share = 1.0 / shape_.num_kv_heads;
  double unit_work = Work(tile) * heads * head_share;
  const size_t rows = static_cast<size_t>(tile.num_queries) *
                      static_cast<size_t>(tile.num_splits + 1) *
                      static_cast<size_t>(shape_.num_heads);
  if (unit_work > fair_work && tile.num_splits > 0 && *partial_rows + rows <= max_partial_rows_) {
    tile.partial_row = static_cast<std::ptrdiff_t>(*partial_rows);
    *partial_rows += rows;
    merge_tiles_.push_back(tile_index);
    const int blocks = std::min(blocks_per_split_, tile.own_block - tile.first_block);
    unit_work = static_cast<double>(tile.num_queries) * blocks * heads * head_share;
  }
  if (unit_work > fair_work) {
    heads = std::max(1, static_cast<int>(heads * fair_work / unit_work));
  }
  const bool split = tile.partial_row >= 0;
  const int num_parts = split ? tile.num_splits + 1 : 1;
  for (int part = 0; part < num_parts; ++part) {
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
         merge_tiles_.capacity() * sizeof(int);
}

}  // namespace turboquant
