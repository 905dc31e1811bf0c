#include "attention/kv_store.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "attention/exact_tile.h"
#include "base/check.h"
#include "codec/block_mean.h"
#include "codec/block_scale.h"
#include "codec/stored_run.h"

namespace turboquant {
namespace {

// New tokens of a chunk that fall into one block: slots [begin, end).
struct SlotRange {
  int begin, end;
};

SlotRange SlotsOf(const SequenceChunk& chunk, int block, int block_size) {
  const int first = block * block_size;
  return {.begin = std::max(chunk.start - first, 0),
          .end = std::min(chunk.start + chunk.num_tokens - first, block_size)};
}

void Add(int64_t value, int64_t* counter) {
  std::atomic_ref<int64_t>(*counter).fetch_add(value, std::memory_order_relaxed);
}

// Row of [head_dim], rotated into `out` where there is a rotation; balance: its channels' factors,
// or null.
const float* RotatedRow(const float* row, const float* balance, int head_dim, RotateFn rotate,
                        float* out) {
  if (rotate == nullptr) return row;
  if (balance != nullptr) {
    for (int c = 0; c < head_dim; ++c) out[c] = row[c] * balance[c];
    row = out;
  }
  rotate({.in = row,
          .in_stride = 0,
          .out = out,
          .out_stride = 0,
          .num_rows = 1,
          .head_dim = head_dim,
          .inverse = false});
  return out;
}

// The row as a recipe stores it, in `out`.
const float* Rounded(const KvRecipe& recipe, KvSide side, const float* row, int head_dim,
                     float* out) {
  std::copy_n(row, head_dim, out);
  recipe.OnToken(side, out, head_dim);
  return out;
}

void WriteSlots(const KvStoreArgs& args, int block, SlotRange slots, const ExactTile& tile) {
  const LayerContext& layer = *args.layer;
  const int head_dim = layer.shape.head_dim;
  const size_t head_offset = static_cast<size_t>(args.head) * static_cast<size_t>(head_dim);
  const int first = block * layer.exact.spec.block_size;
  const auto first_row =
      static_cast<size_t>(args.chunk.first_row + first + slots.begin - args.chunk.start);
  const float* k = args.rows.k + first_row * args.rows.k_stride + head_offset;
  const float* v = args.rows.v + first_row * args.rows.v_stride + head_offset;
  const std::vector<float>& balance = args.view.static_scales->k_balance;
  const float* k_balance = balance.empty() ? nullptr : balance.data() + head_offset;
  const int num_tokens = slots.end - slots.begin;
  for (int i = 0; i < num_tokens; ++i) {
    const auto row = static_cast<size_t>(i);
    const float* k_row =
        RotatedRow(k + row * args.rows.k_stride, k_balance, head_dim, layer.rotate_k, args.scratch);
    const float* v_row = RotatedRow(v + row * args.rows.v_stride, nullptr, head_dim, layer.rotate_v,
                                    args.scratch + head_dim);
    if (args.recipe != nullptr) {
      k_row = Rounded(*args.recipe, KvSide::kKey, k_row, head_dim, args.scratch);
      v_row = Rounded(*args.recipe, KvSide::kValue, v_row, head_dim, args.scratch + head_dim);
    }
    WriteToken(tile, slots.begin + i, k_row, v_row, layer.to_half);
    if (first + slots.begin + i >= args.view.num_sink_tokens) continue;
    WriteToken(ExactTileOfHead(layer.sinks.spec, layer.sinks.layout, args.view.sinks, args.head),
               slots.begin + i, k_row, v_row, layer.to_half);
  }
  if (args.observer != nullptr) {
    args.observer->Observe(layer.index, args.head, KvSide::kKey, k, args.rows.k_stride, num_tokens);
    args.observer->Observe(layer.index, args.head, KvSide::kValue, v, args.rows.v_stride,
                           num_tokens);
  }
}

// What there is to count of a side.
struct SideCounts {
  int64_t end_codes = 0;
  BlockScale block;
};

// Encodes args.scratch, [block_size][head_dim] of one side, into a run.
SideCounts EncodeSide(const KvStoreArgs& args, const TileFormat& format, KvSide side,
                      uint8_t* run) {
  const KvCacheSpec& spec = format.spec;
  const KvBlockLayout& layout = format.layout;
  const bool key = side == KvSide::kKey;
  const KvSideSpec& side_spec = key ? spec.k : spec.v;
  const SideOffsets at = OffsetsOf(layout, side);
  const std::vector<float>& static_scales =
      key ? args.view.static_scales->k : args.view.static_scales->v;
  uint16_t fitted[kMaxBlockTokens];
  auto* scales = reinterpret_cast<uint16_t*>(run + at.scales);
  if (side_spec.HasByteScales()) {
    args.layer->fit_scales({.dtype = side_spec.dtype,
                            .x = args.scratch,
                            .num_tokens = spec.block_size,
                            .head_dim = spec.head_dim,
                            .codes = run + at.scales,
                            .bias = reinterpret_cast<int16_t*>(run + at.scale_bias),
                            .scales = fitted});
    scales = fitted;
  }
  SideCounts counts;
  HeadScales given = ScalesOfHead(side_spec, static_scales, args.head, spec.head_dim);
  std::array<float, kMaxHeadDimOfSpec> channels;
  if (IsStatic(side_spec.granularity) || side_spec.HasBlockScale()) {  // fixed ones are watched too
    counts.block = FitBlockScale({.x = args.scratch,
                                  .num_tokens = spec.block_size,
                                  .head_dim = spec.head_dim,
                                  .side = side_spec,
                                  .static_scales = given});
  }
  if (side_spec.HasBlockScale()) {
    *reinterpret_cast<uint16_t*>(run + at.block_scale) = counts.block.factor;
    given = ScaledBy(given, counts.block.factor, spec.head_dim, &channels);
  }
  (key ? format.encode_k : format.encode_v)(
      {.shape = {.side = side, .num_tokens = spec.block_size, .head_dim = spec.head_dim},
       .spec = side_spec,
       .x = args.scratch,
       .static_scales = given,
       .lines = run + at.lines,
       .scales = scales,
       .zero_points = reinterpret_cast<uint16_t*>(run + at.zero_points),
       .end_codes = &counts.end_codes});
  return counts;
}

struct BlockCounts {
  SideCounts k, v;
};

// Encodes a full exact tile into the run of args.head in `block_bytes`, a block of all KV heads.
BlockCounts EncodeBlock(const KvStoreArgs& args, const TileFormat& format, int block,
                        const ExactTile& tile, uint8_t* block_bytes) {
  const KvCacheSpec& spec = format.spec;
  uint8_t* run = block_bytes + static_cast<size_t>(args.head) * format.layout.bytes_per_head;
  GatherKeys(tile, spec.block_size, args.scratch);
  if (args.recipe != nullptr) {
    args.recipe->OnClose(KvSide::kKey, block, args.scratch, spec.block_size, spec.head_dim);
  }
  if (spec.k.HasMean()) {
    CenterKeys({.x = args.scratch,
                .num_tokens = spec.block_size,
                .head_dim = spec.head_dim,
                .mean_bits = MeanBits(spec.k.dtype),
                .codes = run + format.layout.k_mean,
                .scale = reinterpret_cast<uint16_t*>(run + format.layout.k_mean_scale)});
  }
  const SideCounts k = EncodeSide(args, format, KvSide::kKey, run);
  GatherValues(tile, spec.block_size, args.scratch);
  if (args.recipe != nullptr) {
    args.recipe->OnClose(KvSide::kValue, block, args.scratch, spec.block_size, spec.head_dim);
  }
  return {.k = k, .v = EncodeSide(args, format, KvSide::kValue, run)};
}

void Count(const SideCounts& counts, bool corrects, size_t head, SaturationCounts::Side* side) {
  Add(counts.end_codes, &side->end_codes[head]);
  if (corrects && counts.block.factor != kNoCorrection) Add(1, &side->corrected_blocks[head]);
  const std::atomic_ref<float> reach(side->reach[head]);
  float seen = reach.load(std::memory_order_relaxed);
  while (seen < counts.block.reach &&
         !reach.compare_exchange_weak(seen, counts.block.reach, std::memory_order_relaxed)) {
  }
}

// Shows a block that has just been encoded into `block_bytes`.
void ShowBlock(const KvStoreArgs& args, const ExactTile& tile, const uint8_t* block_bytes) {
  const TileFormat& format = args.layer->coded;
  const int block_size = format.spec.block_size, head_dim = format.spec.head_dim;
  const KvStaticScales& scales = *args.view.static_scales;
  std::vector<float> exact(KvStoreScratchFloats(format.spec)), stored(exact.size());
  for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
    const bool key = side == KvSide::kKey;
    (key ? GatherKeys : GatherValues)(tile, block_size, exact.data());
    ReadRun({.spec = &format.spec,
             .layout = &format.layout,
             .side = side,
             .run = block_bytes + static_cast<size_t>(args.head) * format.layout.bytes_per_head,
             .static_scales = ScalesOfHead(key ? format.spec.k : format.spec.v,
                                           key ? scales.k : scales.v, args.head, head_dim),
             .x = stored.data()});
    args.block_observer->ObserveBlock(args.layer->index, args.head, side, exact.data(),
                                      stored.data(), block_size);
  }
}

// The codes of a block whose exact tile is full.
void CloseBlock(const KvStoreArgs& args, int block, const ExactTile& tile) {
  const LayerContext& layer = *args.layer;
  const auto head = static_cast<size_t>(args.head);
  uint8_t* block_bytes = args.view.Block(static_cast<size_t>(block));
  const BlockCounts counts = EncodeBlock(args, layer.coded, block, tile, block_bytes);
  if (args.block_observer != nullptr) ShowBlock(args, tile, block_bytes);
  Count(counts.k, layer.coded.spec.k.HasCorrection(), head, &args.saturation->k);
  Count(counts.v, layer.coded.spec.v.HasCorrection(), head, &args.saturation->v);
  Add(1, &args.saturation->num_blocks[head]);
  Add(int64_t{layer.coded.spec.block_size} * layer.coded.spec.head_dim,
      &args.saturation->num_codes[head]);
  if (!layer.recent) return;
  const auto copy = static_cast<size_t>(args.plan->ClosedIndex(args.unit.chunk, block));
  EncodeBlock(args, *layer.recent, block, tile, args.recent + copy * layer.recent->BytesPerBlock());
}

void StoreBlock(const KvStoreArgs& args, int block, const ExactTile& tile) {
  const int block_size = args.layer->exact.spec.block_size;
  const SlotRange slots = SlotsOf(args.chunk, block, block_size);
  DCHECK_LT(slots.begin, slots.end);
  WriteSlots(args, block, slots, tile);
  if (slots.end == block_size) CloseBlock(args, block, tile);
}

}  // namespace

size_t KvStoreScratchFloats(const KvCacheSpec& spec) {
  return static_cast<size_t>(spec.block_size) * static_cast<size_t>(spec.head_dim);
}

void StoreKvUnit(const KvStoreArgs& args) {
  const TileFormat& exact = args.layer->exact;
  const ExactTile tail = ExactTileOfHead(exact.spec, exact.layout, args.view.tail, args.head);
  if (args.staging == nullptr) {
    StoreBlock(args, args.unit.block, tail);
    return;
  }
  const ExactTile staged = ExactTileOfHead(exact.spec, exact.layout, args.staging, args.head);
  const int old_slots = std::max(args.chunk.start - args.unit.block * exact.spec.block_size, 0);
  if (old_slots > 0) CopySlots(tail, old_slots, staged);
  StoreBlock(args, args.unit.block, staged);
  if (args.unit.tail_block != kNoBlock) StoreBlock(args, args.unit.tail_block, tail);
}

}  // namespace turboquant
