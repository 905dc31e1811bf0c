// What store and attention need to know of one layer, looked up once.
#ifndef TURBOQUANT_ATTENTION_LAYER_CONTEXT_H_
#define TURBOQUANT_ATTENTION_LAYER_CONTEXT_H_

#include <cstddef>
#include <optional>

#include "attention/paged_attention.h"
#include "attention/step_plan.h"
#include "cache/kv_cache_manager.h"
#include "codec/kv_cache_spec.h"
#include "kernels/kernel_table.h"

namespace turboquant {

// How runs of one kind are stored and which kernels read them. A run: the tokens of one KV head in
// a block or exact tile.
struct TileFormat {
  KvCacheSpec spec;
  KvBlockLayout layout;
  PrepareQFn prepare_q;
  QkFn qk;
  PvFn pv;
  EncodeFn encode_k, encode_v;

  TileFormat(const KvCacheSpec& tile_spec, const KernelTable& kernels)
      : spec(tile_spec),
        layout(tile_spec),
        prepare_q(kernels.of(tile_spec.k.dtype).prepare_q),
        qk(kernels.of(tile_spec.k.dtype).qk),
        pv(kernels.of(tile_spec.v.dtype).pv),
        encode_k(kernels.of(tile_spec.k.dtype).encode),
        encode_v(kernels.of(tile_spec.v.dtype).encode) {}

  size_t BytesPerBlock() const {
    return static_cast<size_t>(spec.num_kv_heads) * layout.bytes_per_head;
  }

  size_t PreparedRowBytes() const {
    return PreparedQBytes(spec.head_dim, spec.k.ChannelsPerScale(spec.head_dim));
  }
};

struct LayerContext {
  int index;
  LayerAttentionParams params;
  LayerShape shape;
  TileFormat coded;  // closed blocks
  TileFormat exact;  // tails and staging tiles
  TileFormat sinks;  // sink tiles: exact, kSinkTileTokens slots
  // Copies of recent blocks, where the layer keeps some (shape.recent_blocks > 0).
  std::optional<TileFormat> recent;
  SoftmaxFn softmax;
  ConvertFn to_half;
  // Of K (and queries) and V (and outputs), whose side is rotated; else null. All stored values are
  // rotated then, those of exact tiles too.
  RotateFn rotate_k, rotate_v;
  FitScalesFn fit_scales;        // of sides with byte scales
  ExpandScalesFn expand_scales;  // the same, reading
  MeanDotFn mean_dot;            // of K with a block mean

  // recent_tokens: KvCacheConfig::num_recent_tokens
  LayerContext(int layer, const KvCacheSpec& spec, int recent_tokens,
               const LayerAttentionParams& layer_params, const KernelTable& kernels)
      : index(layer),
        params(layer_params),
        shape{.num_heads = layer_params.num_heads,
              .num_kv_heads = spec.num_kv_heads,
              .head_dim = spec.head_dim,
              .sliding_window = layer_params.sliding_window,
              .recent_blocks = 0},
        coded(spec, kernels),
        exact(ExactSpec(spec, spec.block_size), kernels),
        sinks(ExactSpec(spec, kSinkTileTokens), kernels),
        softmax(kernels.softmax),
        to_half(kernels.to_half),
        rotate_k(IsRotated(spec.k.transform) ? kernels.rotate : nullptr),
        rotate_v(IsRotated(spec.v.transform) ? kernels.rotate : nullptr),
        fit_scales(kernels.fit_scales),
        expand_scales(kernels.expand_scales),
        mean_dot(kernels.mean_dot) {
    const auto recent_spec = RecentSpec(spec);
    if (recent_tokens == 0 || !recent_spec) return;
    recent.emplace(*recent_spec, kernels);
    shape.recent_blocks = recent_tokens / spec.block_size;
  }
};

}  // namespace turboquant

#endif  // TURBOQUANT_ATTENTION_LAYER_CONTEXT_H_
