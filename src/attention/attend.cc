#include "attention/attend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/check.h"
#include "base/half.h"
#include "codec/block_scale.h"

namespace turboquant {
namespace {

constexpr int kMaxRunTiles = kMaxBlockTokens / kMaxTileTokens;

// What the rows of a unit see of a run, tile by tile. Where a KV head has more than kMaxTileRows
// rows they all belong to one query, so that the same entries serve every kernel call.
struct RunMask {
  int num_tiles = 0;
  std::array<int, kMaxRunTiles>
      num_tokens;  // that a kernel must look at, a multiple of 16; 0: no row sees any
  int begin[kMaxRunTiles][kMaxTileRows];  // row r sees tokens [begin, end) of the tile
  int end[kMaxRunTiles][kMaxTileRows];
};

// Tokens [first, end) of a run whose slot 0 is at `position` may be seen at all.
struct RunExtent {
  int position;
  int first, end;
};

// A run as the kernels take it. Scales and zero points are those of its first token, or null.
struct RunView {
  const uint8_t* run;
  const uint8_t* next_run;  // that is fetched meanwhile, or null
  const uint16_t *k_scales, *v_scales, *k_zero_points, *v_zero_points;
};

// Tile `index` of a run, and rows of the unit.
struct TileMask {
  const RunMask& mask;
  size_t index;
};
struct TileRows {
  size_t first;
  int num_rows;
  bool prefetch;  // the next run's tile beside this one's
};

// Every row sees the run's tokens from `first` on.
void FillUniformMask(int first, int run_tokens, RunMask* mask) {
  mask->num_tiles = 0;
  for (int start = 0; start < run_tokens; start += kMaxTileTokens) {
    const auto tile = static_cast<size_t>(mask->num_tiles++);
    mask->num_tokens[tile] = std::min(kMaxTileTokens, run_tokens - start);
    std::fill_n(mask->begin[tile], kMaxTileRows,
                std::clamp(first - start, 0, mask->num_tokens[tile]));
    std::fill_n(mask->end[tile], kMaxTileRows, mask->num_tokens[tile]);
  }
}

class UnitWorker {
 public:
  UnitWorker(const AttendTask& task, const AttendUnit& unit, AttendScratch* scratch)
      : task_(task),
        layer_(*task.layer),
        unit_(unit),
        tile_(task.plan->tiles()[static_cast<size_t>(unit.tile)]),
        chunk_(task.chunks[static_cast<size_t>(tile_.chunk)]),
        view_(task.manager->View(layer_.index, chunk_.sequence)),
        scratch_(scratch),
        group_(layer_.shape.HeadsPerGroup()),
        members_(unit.num_members == 1
                     ? std::span(&unit.tile, 1)
                     : task.plan->members().subspan(static_cast<size_t>(unit.first_member),
                                                    static_cast<size_t>(unit.num_members))),
        rows_per_head_(RowsPerHead()),
        num_rows_(rows_per_head_ * static_cast<size_t>(unit.head_end - unit.head_begin)),
        head_dim_(static_cast<size_t>(layer_.shape.head_dim)) {
    FillUniformMask(0, block_size(), &full_mask_);
  }

  void Run();

 private:
  int block_size() const { return layer_.coded.spec.block_size; }
  const QueryTile& Tile(int index) const { return task_.plan->tiles()[static_cast<size_t>(index)]; }
  size_t RowsPerHead() const {
    size_t rows = 0;
    for (const int member : members_) {
      rows += static_cast<size_t>(Tile(member).num_queries) * static_cast<size_t>(group_);
    }
    return rows;
  }
  // First block that the queries read as its copy; their own one where the layer has none.
  int FirstRecent() const { return tile_.own_block - layer_.shape.recent_blocks; }
  // First position that the query sees.
  int FirstSeen(int query_position) const {
    const int window = layer_.shape.sliding_window;
    return window > 0 ? std::max(0, query_position - window + 1) : 0;
  }

  const float* RotatedQueries(const float* rows, int num_rows, int head, size_t unit_row) const;
  void PrepareQueries(const TileFormat& format);
  void PrepareQuery(const TileFormat& format, size_t row, int head, size_t unit_row);
  void PrepareClosedQueries(const TileFormat& format);
  void FillMask(const RunExtent& extent, int run_tokens, RunMask* mask) const;
  const RunMask& MaskOfBlock(int block);
  void WalkSplit(int split, const AttentionState& state);
  void WalkBlocks(const TileFormat& format, int begin, int end, const AttentionState& state);
  const uint8_t* ClosedBlockIn(const TileFormat& format, int block) const;
  void WalkExact(const AttentionState& state);
  void AttendHeads(const TileFormat& format, const uint8_t* block, const uint8_t* next_block,
                   const RunMask& mask, const AttentionState& state);
  void AttendRun(const TileFormat& format, const uint8_t* run, const uint8_t* next_run,
                 const RunMask& mask, size_t first_row, const AttentionState& state);
  struct StoredScales {
    const uint8_t *scales, *bias, *block_scale;  // of one side of a run, where it has them
  };
  const uint16_t* ScalesOfRun(const KvSideSpec& side, const StoredScales& stored,
                              uint16_t* expanded) const;
  const float* MeanScores(const TileFormat& format, const uint8_t* run, size_t row, int num_rows,
                          float* out) const;
  void AttendTile(const TileFormat& format, const RunView& view, const TileMask& tile,
                  const TileRows& which, const AttentionState& state);
  void ApplyStaticValueScales(const AttentionState& state);
  void KeepPartial();

  const AttendTask& task_;
  const LayerContext& layer_;
  const AttendUnit& unit_;
  const QueryTile& tile_;  // the only one, or the first of the members: its blocks are theirs
  const SequenceChunk& chunk_;
  const PagedKvView view_;
  AttendScratch* const scratch_;
  const int group_;
  const std::span<const int> members_;  // tiles
  const size_t rows_per_head_, num_rows_, head_dim_;
  RunMask full_mask_, mask_;
};

// rows: [num_rows][head_dim], those of the unit from unit_row on; head: KV head
const float* UnitWorker::RotatedQueries(const float* rows, int num_rows, int head,
                                        size_t unit_row) const {
  if (layer_.rotate_k == nullptr) return rows;
  float* rotated = scratch_->rotated + unit_row * head_dim_;
  if (const std::vector<float>& balance = view_.static_scales->k_balance; !balance.empty()) {
    const float* factors = balance.data() + static_cast<size_t>(head) * head_dim_;
    for (size_t at = 0; at < static_cast<size_t>(num_rows) * head_dim_; at += head_dim_) {
      for (size_t c = 0; c < head_dim_; ++c) rotated[at + c] = rows[at + c] / factors[c];
    }
    rows = rotated;
  }
  layer_.rotate_k({.in = rows,
                   .in_stride = head_dim_,
                   .out = rotated,
                   .out_stride = head_dim_,
                   .num_rows = num_rows,
                   .head_dim = layer_.shape.head_dim,
                   .inverse = false});
  return rotated;
}

// Row of the unit: [KV head][tile][query][head of the group].
void UnitWorker::PrepareQueries(const TileFormat& format) {
  size_t unit_row = 0;
  for (int head = unit_.head_begin; head < unit_.head_end; ++head) {
    for (const int member : members_) {
      const QueryTile& tile = Tile(member);
      const int first_row = task_.chunks[static_cast<size_t>(tile.chunk)].first_row;
      for (int query = 0; query < tile.num_queries; ++query) {
        PrepareQuery(format, static_cast<size_t>(first_row + tile.first_query + query), head,
                     unit_row);
        unit_row += static_cast<size_t>(group_);
      }
    }
  }
}

// The rows of one query and KV head.
void UnitWorker::PrepareQuery(const TileFormat& format, size_t row, int head, size_t unit_row) {
  const HeadScales scales =
      ScalesOfHead(format.spec.k, view_.static_scales->k, head, format.spec.head_dim);
  const float* q = task_.q + row * task_.q_stride + static_cast<size_t>(head * group_) * head_dim_;
  for (int first = 0; first < group_; first += kMaxTileRows) {
    const int num_rows = std::min(kMaxTileRows, group_ - first);
    const size_t to = unit_row + static_cast<size_t>(first);
    format.prepare_q(
        {.q = RotatedQueries(q + static_cast<size_t>(first) * head_dim_, num_rows, head, to),
         .q_stride = head_dim_,
         .num_rows = num_rows,
         .head_dim = format.spec.head_dim,
         .group_size = format.spec.k.ChannelsPerScale(format.spec.head_dim),
         .scale = layer_.params.scale * scales.head,
         .channel_scales = scales.channels,
         .out = scratch_->prepared_q + to * format.PreparedRowBytes()});
  }
}

// The splits of a tile often follow each other on one thread and want the same queries.
void UnitWorker::PrepareClosedQueries(const TileFormat& format) {
  if (scratch_->prepared_format == &format && scratch_->prepared_tile == unit_.tile &&
      scratch_->prepared_head == unit_.head_begin &&
      scratch_->prepared_member == unit_.first_member &&
      scratch_->prepared_members == unit_.num_members) {
    return;
  }
  PrepareQueries(format);
  scratch_->prepared_format = &format;
  scratch_->prepared_tile = unit_.tile;
  scratch_->prepared_head = unit_.head_begin;
  scratch_->prepared_member = unit_.first_member;
  scratch_->prepared_members = unit_.num_members;
}

void UnitWorker::FillMask(const RunExtent& extent, int run_tokens, RunMask* mask) const {
  const int rows_per_query = std::min(group_, kMaxTileRows);
  mask->num_tiles = 0;
  for (int start = 0; start < run_tokens; start += kMaxTileTokens) {
    const int tile_tokens = std::min(kMaxTileTokens, run_tokens - start);
    const auto tile = static_cast<size_t>(mask->num_tiles++);
    int last_end = 0;
    for (int query = 0; query < tile_.num_queries; ++query) {
      const int position =
          tile_.first_position + query - extent.position;  // slot of the query itself
      const int seen = FirstSeen(tile_.first_position + query) - extent.position;
      const int begin = std::clamp(std::max(seen, extent.first) - start, 0, tile_tokens);
      const int end = std::clamp(std::min(position + 1, extent.end) - start, 0, tile_tokens);
      if (begin < end) last_end = std::max(last_end, end);
      std::fill_n(mask->begin[tile] + query * rows_per_query, rows_per_query, begin);
      std::fill_n(mask->end[tile] + query * rows_per_query, rows_per_query, end);
    }
    mask->num_tokens[tile] = (last_end + 15) / 16 * 16;
  }
}

const RunMask& UnitWorker::MaskOfBlock(int block) {
  const int position = block * block_size();
  const int num_sinks = block == 0 ? view_.num_sink_tokens : 0;
  // The last query's window begins last.
  const bool all_seen = FirstSeen(tile_.first_position + tile_.num_queries - 1) <= position;
  if (num_sinks == 0 && all_seen) return full_mask_;
  if (members_.size() > 1) {  // without a sliding window all rows see the same
    FillUniformMask(num_sinks, block_size(), &mask_);
    return mask_;
  }
  FillMask({.position = position, .first = num_sinks, .end = block_size()}, block_size(), &mask_);
  return mask_;
}

void UnitWorker::WalkSplit(int split, const AttentionState& state) {
  Reset(state, num_rows_, head_dim_);
  const int blocks_per_split = task_.plan->blocks_per_split();
  const int begin = std::max(tile_.first_block, (tile_.first_split + split) * blocks_per_split);
  const int end = std::min(tile_.own_block, (tile_.first_split + split + 1) * blocks_per_split);
  const int recent = std::max(begin, std::min(end, FirstRecent()));
  if (begin < recent) WalkBlocks(layer_.coded, begin, recent, state);
  if (recent < end) WalkBlocks(*layer_.recent, recent, end, state);
  ApplyStaticValueScales(state);
}

const uint8_t* UnitWorker::ClosedBlockIn(const TileFormat& format, int block) const {
  if (&format == &layer_.coded) return view_.Block(static_cast<size_t>(block));
  const int closed = task_.store_plan->ClosedIndex(tile_.chunk, block);
  return closed < 0 ? view_.RecentBlock(static_cast<size_t>(block))
                    : task_.recent + static_cast<size_t>(closed) * format.BytesPerBlock();
}

// Blocks [begin, end) of a split in one of the formats that they have.
void UnitWorker::WalkBlocks(const TileFormat& format, int begin, int end,
                            const AttentionState& state) {
  PrepareClosedQueries(format);
  // A unit that walks all splits reads on into the next one.
  int last = end;
  if (unit_.split == AttendUnit::kWholeTile) {
    last = &format == &layer_.coded ? FirstRecent() : tile_.own_block;
  }
  for (int block = begin; block < end; ++block) {
    const uint8_t* next = block + 1 < last ? ClosedBlockIn(format, block + 1) : nullptr;
    AttendHeads(format, ClosedBlockIn(format, block), next, MaskOfBlock(block), state);
  }
}

void UnitWorker::WalkExact(const AttentionState& state) {
  scratch_->prepared_tile = -1;
  PrepareQueries(layer_.exact);
  Reset(state, num_rows_, head_dim_);
  if (view_.num_sink_tokens > 0 && tile_.own_block > 0) {
    FillMask({.position = 0, .first = 0, .end = view_.num_sink_tokens}, kSinkTileTokens, &mask_);
    AttendHeads(layer_.sinks, view_.sinks, nullptr, mask_, state);
  }
  const int staged = task_.store_plan->StagingTile(tile_.chunk, tile_.own_block);
  const uint8_t* own =
      staged < 0 ? view_.tail
                 : task_.staging + static_cast<size_t>(staged) * layer_.exact.BytesPerBlock();
  FillMask({.position = tile_.own_block * block_size(), .first = 0, .end = block_size()},
           block_size(), &mask_);
  AttendHeads(layer_.exact, own, nullptr, mask_, state);
}

void UnitWorker::AttendHeads(const TileFormat& format, const uint8_t* block,
                             const uint8_t* next_block, const RunMask& mask,
                             const AttentionState& state) {
  const size_t stride = format.layout.bytes_per_head;
  for (int head = unit_.head_begin; head < unit_.head_end; ++head) {
    const uint8_t* run = block + static_cast<size_t>(head) * stride;
    const uint8_t* next_run = run + stride;
    if (head + 1 == unit_.head_end) {
      next_run = next_block == nullptr
                     ? nullptr
                     : next_block + static_cast<size_t>(unit_.head_begin) * stride;
    }
    const auto first_row = static_cast<size_t>(head - unit_.head_begin) * rows_per_head_;
    AttendRun(format, run, next_run, mask, first_row, state);
  }
}

// Scales of one side of a run, of all its tokens; null where there are none. Those of one byte are
// expanded into `expanded`, and a block's scale or correction stands there for every token.
const uint16_t* UnitWorker::ScalesOfRun(const KvSideSpec& side, const StoredScales& stored,
                                        uint16_t* expanded) const {
  if (side.HasBlockScale()) {
    const uint16_t factor = *reinterpret_cast<const uint16_t*>(stored.block_scale);
    if (factor == kNoCorrection) return nullptr;
    std::fill_n(expanded, block_size(), factor);
    return expanded;
  }
  if (!IsPerToken(side.granularity)) return nullptr;
  if (!side.HasByteScales()) return reinterpret_cast<const uint16_t*>(stored.scales);
  layer_.expand_scales({.codes = stored.scales,
                        .bias = *reinterpret_cast<const int16_t*>(stored.bias),
                        .num_tokens = block_size(),
                        .scales = expanded});
  return expanded;
}

// What the mean of the run's keys adds to the scores of rows from `row` of the unit on; null
// without one.
const float* UnitWorker::MeanScores(const TileFormat& format, const uint8_t* run, size_t row,
                                    int num_rows, float* out) const {
  if (!format.spec.k.HasMean()) return nullptr;
  const uint16_t scale = *reinterpret_cast<const uint16_t*>(run + format.layout.k_mean_scale);
  layer_.mean_dot({.q = scratch_->rotated + row * head_dim_,
                   .q_stride = head_dim_,
                   .num_rows = num_rows,
                   .head_dim = format.spec.head_dim,
                   .mean_bits = MeanBits(format.spec.k.dtype),
                   .codes = run + format.layout.k_mean,
                   .scale = HalfToFloat(scale) * layer_.params.scale,
                   .out = out});
  return out;
}

void UnitWorker::AttendRun(const TileFormat& format, const uint8_t* run, const uint8_t* next_run,
                           const RunMask& mask, size_t first_row, const AttentionState& state) {
  const KvCacheSpec& spec = format.spec;
  const KvBlockLayout& layout = format.layout;
  const auto zero_points = [&](const KvSideSpec& side, size_t offset) {
    return side.HasZeroPoint() ? reinterpret_cast<const uint16_t*>(run + offset) : nullptr;
  };
  uint16_t expanded_k[kMaxBlockTokens], expanded_v[kMaxBlockTokens];
  const RunView view = {
      .run = run,
      .next_run = next_run,
      .k_scales = ScalesOfRun(
          spec.k, {run + layout.k_scales, run + layout.k_scale_bias, run + layout.k_block_scale},
          expanded_k),
      .v_scales = ScalesOfRun(
          spec.v, {run + layout.v_scales, run + layout.v_scale_bias, run + layout.v_block_scale},
          expanded_v),
      .k_zero_points = zero_points(spec.k, layout.k_zero_points),
      .v_zero_points = zero_points(spec.v, layout.v_zero_points)};
  if (next_run != nullptr) {  // scales and zero points; the kernels fetch the lines
    for (size_t i = 0; i < layout.k_lines; i += kCacheLineBytes) __builtin_prefetch(next_run + i);
  }
  for (size_t i = 0; i < static_cast<size_t>(mask.num_tiles); ++i) {
    if (mask.num_tokens[i] == 0) continue;
    for (size_t row = 0; row < rows_per_head_; row += kMaxTileRows) {
      const int num_rows = static_cast<int>(std::min<size_t>(kMaxTileRows, rows_per_head_ - row));
      AttendTile(format, view, {mask, i}, {first_row + row, num_rows, row == 0}, state);
    }
  }
}

// One tile of a run, up to kMaxTileRows rows.
void UnitWorker::AttendTile(const TileFormat& format, const RunView& view, const TileMask& tile,
                            const TileRows& which, const AttentionState& state) {
  const KvCacheSpec& spec = format.spec;
  const size_t token = tile.index * kMaxTileTokens;
  const size_t values = token * head_dim_;
  const size_t k_offset =
      format.layout.k_lines + values * static_cast<size_t>(CodeBits(spec.k.dtype)) / 8;
  const size_t v_offset =
      format.layout.v_lines + values * static_cast<size_t>(CodeBits(spec.v.dtype)) / 8;
  const auto from = [token](const uint16_t* scales) {
    return scales == nullptr ? nullptr : scales + token;
  };
  const int num_tokens = tile.mask.num_tokens[tile.index];
  const AttentionState rows = state.FromRow(which.first, head_dim_);
  const uint8_t* prefetch = which.prefetch ? view.next_run : nullptr;
  float rescale[kMaxTileRows], mean_scores[kMaxTileRows];
  format.qk({.q = scratch_->prepared_q + which.first * format.PreparedRowBytes(),
             .k = view.run + k_offset,
             .scales = from(view.k_scales),
             .zero_points = from(view.k_zero_points),
             .scale_stride = spec.block_size,
             .num_rows = which.num_rows,
             .num_tokens = num_tokens,
             .head_dim = spec.head_dim,
             .group_size = spec.k.ChannelsPerScale(spec.head_dim),
             .scores = scratch_->scores,
             .offsets = MeanScores(format, view.run, which.first, which.num_rows, mean_scores),
             .prefetch = prefetch == nullptr ? nullptr : prefetch + k_offset});
  layer_.softmax({.scores = scratch_->scores,
                  .begin = tile.mask.begin[tile.index],
                  .end = tile.mask.end[tile.index],
                  .num_rows = which.num_rows,
                  .num_tokens = num_tokens,
                  .logit_softcap = layer_.params.logit_softcap,
                  .max = rows.max,
                  .sum = rows.sum,
                  .rescale = rescale});
  format.pv({.p = scratch_->scores,
             .v = view.run + v_offset,
             .scales = from(view.v_scales),
             .zero_points = from(view.v_zero_points),
             .scale_stride = spec.block_size,
             .num_rows = which.num_rows,
             .num_tokens = num_tokens,
             .head_dim = spec.head_dim,
             .group_size = spec.v.ChannelsPerScale(spec.head_dim),
             .rescale = rescale,
             .out = rows.output,
             .prefetch = prefetch == nullptr ? nullptr : prefetch + v_offset});
}

void UnitWorker::ApplyStaticValueScales(const AttentionState& state) {
  const KvSideSpec& side = layer_.coded.spec.v;
  if (!IsStatic(side.granularity)) return;
  for (int head = unit_.head_begin; head < unit_.head_end; ++head) {
    const HeadScales scales =
        ScalesOfHead(side, view_.static_scales->v, head, layer_.coded.spec.head_dim);
    const auto first_row = static_cast<size_t>(head - unit_.head_begin) * rows_per_head_;
    for (size_t row = first_row; row < first_row + rows_per_head_; ++row) {
      float* output = state.output + row * head_dim_;
      for (size_t c = 0; c < head_dim_; ++c) {
        output[c] *= scales.channels == nullptr ? scales.head : scales.head * scales.channels[c];
      }
    }
  }
}

// First stored row of a split tile's part (a split, or the exact tile after the last one) and KV
// head.
size_t PartialRow(const QueryTile& tile, const LayerShape& shape, int part, int head) {
  const auto rows_per_head = static_cast<size_t>(tile.num_queries * shape.HeadsPerGroup());
  const auto run = static_cast<size_t>(part) * static_cast<size_t>(shape.num_kv_heads) +
                   static_cast<size_t>(head);
  return static_cast<size_t>(tile.partial_row) + run * rows_per_head;
}

// state: rows [query][head of the group] of one KV head.
void WriteHead(const AttendTask& task, const QueryTile& tile, int head,
               const AttentionState& state) {
  const LayerShape& shape = task.layer->shape;
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  const auto group = static_cast<size_t>(shape.HeadsPerGroup());
  const SequenceChunk& chunk = task.chunks[static_cast<size_t>(tile.chunk)];
  for (size_t query = 0; query < static_cast<size_t>(tile.num_queries); ++query) {
    const size_t row = static_cast<size_t>(chunk.first_row + tile.first_query) + query;
    float* out = task.out + row * task.out_stride + static_cast<size_t>(head) * group * head_dim;
    for (size_t g = 0; g < group; ++g) {
      Finish(state.FromRow(query * group + g, head_dim), head_dim, out + g * head_dim);
    }
    if (task.layer->rotate_v != nullptr) {
      task.layer->rotate_v({.in = out,
                            .in_stride = head_dim,
                            .out = out,
                            .out_stride = head_dim,
                            .num_rows = shape.HeadsPerGroup(),
                            .head_dim = shape.head_dim,
                            .inverse = true});
    }
  }
}

void UnitWorker::KeepPartial() {
  size_t from = 0;
  for (int head = unit_.head_begin; head < unit_.head_end; ++head) {
    for (const int member : members_) {
      const QueryTile& tile = Tile(member);
      const auto rows = static_cast<size_t>(tile.num_queries * group_);
      const size_t to = PartialRow(tile, layer_.shape, unit_.split, head);
      Copy(scratch_->merged.FromRow(from, head_dim_), rows, head_dim_,
           task_.partials.FromRow(to, head_dim_));
      from += rows;
    }
  }
}

void UnitWorker::Run() {
  if (unit_.split == tile_.num_splits) {
    WalkExact(scratch_->merged);
    return KeepPartial();
  }
  if (unit_.split != AttendUnit::kWholeTile) {
    WalkSplit(unit_.split, scratch_->merged);
    return KeepPartial();
  }
  for (int split = 0; split < tile_.num_splits; ++split) {
    WalkSplit(split, split == 0 ? scratch_->merged : scratch_->current);
    if (split > 0) Merge(scratch_->current, num_rows_, head_dim_, scratch_->merged);
  }
  WalkExact(tile_.num_splits == 0 ? scratch_->merged : scratch_->current);
  if (tile_.num_splits > 0) Merge(scratch_->current, num_rows_, head_dim_, scratch_->merged);
  for (int head = unit_.head_begin; head < unit_.head_end; ++head) {
    const auto first_row = static_cast<size_t>(head - unit_.head_begin) * rows_per_head_;
    WriteHead(task_, tile_, head, scratch_->merged.FromRow(first_row, head_dim_));
  }
}

}  // namespace

void AttendOneUnit(const AttendTask& task, const AttendUnit& unit, AttendScratch* scratch) {
  UnitWorker(task, unit, scratch).Run();
}

void KeepRecentCopy(const AttendTask& task, int closed) {
  const TileFormat& format = *task.layer->recent;
  const std::span<const ClosedBlock> blocks = task.store_plan->closed_blocks();
  const auto index = static_cast<size_t>(closed);
  const ClosedBlock& block = blocks[index];
  const size_t newer = index + static_cast<size_t>(task.layer->shape.recent_blocks);
  if (newer < blocks.size() && blocks[newer].chunk == block.chunk) return;
  const PagedKvView view =
      task.manager->View(task.layer->index, task.chunks[static_cast<size_t>(block.chunk)].sequence);
  std::memcpy(view.RecentBlock(static_cast<size_t>(block.block)),
              task.recent + index * format.BytesPerBlock(), format.BytesPerBlock());
}

void MergeHead(const AttendTask& task, int tile_index, int head, AttendScratch* scratch) {
  const QueryTile& tile = task.plan->tiles()[static_cast<size_t>(tile_index)];
  const LayerShape& shape = task.layer->shape;
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  const auto num_rows = static_cast<size_t>(tile.num_queries * shape.HeadsPerGroup());
  for (int part = 0; part <= tile.num_splits; ++part) {
    const AttentionState from =
        task.partials.FromRow(PartialRow(tile, shape, part, head), head_dim);
    if (part == 0) {
      Copy(from, num_rows, head_dim, scratch->merged);
    } else {
      Merge(from, num_rows, head_dim, scratch->merged);
    }
  }
  WriteHead(task, tile, head, scratch->merged);
}

}  // namespace turboquant
