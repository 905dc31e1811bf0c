#include "planner/cache_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "planner/bytes.h"

namespace turboquant {
namespace {

constexpr std::string_view kLayersFlag = "--kv-cache-dtype-layers";
constexpr int kMaxRecentTokens = 1 << 20;

struct LayerRange {
  int first, last;
  std::string_view format;
};

Result<int> ParseLayer(std::string_view text, std::string_view item, int num_layers) {
  int layer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), layer);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return Fail(ErrorCode::kInvalidArgument, "{} '{}': want LAYER:FORMAT or FIRST-LAST:FORMAT",
                kLayersFlag, item);
  }
  if (layer < 0 || layer >= num_layers) {
    return Fail(ErrorCode::kInvalidArgument, "{} '{}': the model has layers 0 to {}", kLayersFlag,
                item, num_layers - 1);
  }
  return layer;
}

// One of "0-3:f16".
Result<LayerRange> ParseLayerRange(std::string_view item, int num_layers) {
  const size_t colon = item.find(':');
  const std::string_view layers = item.substr(0, colon);
  const size_t dash = layers.find('-');
  LayerRange range{};
  TQ_ASSIGN_OR_RETURN(range.first, ParseLayer(layers.substr(0, dash), item, num_layers));
  range.last = range.first;
  if (dash != std::string_view::npos) {
    TQ_ASSIGN_OR_RETURN(range.last, ParseLayer(layers.substr(dash + 1), item, num_layers));
  }
  if (colon == std::string_view::npos || colon + 1 == item.size() || range.last < range.first) {
    return Fail(ErrorCode::kInvalidArgument, "{} '{}': want LAYER:FORMAT or FIRST-LAST:FORMAT",
                kLayersFlag, item);
  }
  range.format = item.substr(colon + 1);
  return range;
}

// "none" and "balanced" hold for the overrides as well; "rotated" and "centered" is what they have
// by default where they can.
Status ApplyOverrides(const CachePlanOptions& options, std::vector<KvCacheSpec>* layers,
                      std::vector<std::string>* notes) {
  const std::string_view transform = options.kv_transform == "none" ? "none" : "";
  std::string_view text = options.kv_cache_dtype_layers;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    TQ_ASSIGN_OR_RETURN(const LayerRange range,
                        ParseLayerRange(item, static_cast<int>(layers->size())));
    TQ_ASSIGN_OR_RETURN(KvSidePair sides, ParseKvFormat(range.format, "", transform, notes));
    if (options.kv_transform == Name(KvTransform::kBalanced) && sides.k.HasMean()) {
      sides.k.transform = KvTransform::kBalanced;
    }
    for (int layer = range.first; layer <= range.last; ++layer) {
      (*layers)[static_cast<size_t>(layer)].k = sides.k;
      (*layers)[static_cast<size_t>(layer)].v = sides.v;
    }
  }
  return {};
}

Status CheckScales(const std::vector<KvCacheSpec>& layers, const CachePlanOptions& options) {
  for (const KvCacheSpec& spec : layers) {
    if (options.calibration != nullptr) {
      TQ_RETURN_IF_ERROR(options.calibration->CheckSpec(spec));
      continue;
    }
    if (spec.k.transform == KvTransform::kBalanced) {
      return Fail(ErrorCode::kInvalidArgument,
                  "balanced keys need a calibration table, and none was given (--kv-scales FILE; "
                  "eval also --calibration-text FILE): --kv-transform centered needs none");
    }
    for (const KvSideSpec& side : {spec.k, spec.v}) {
      if (!IsStatic(side.granularity)) continue;
      return Fail(ErrorCode::kInvalidArgument,
                  "{} scales come from a calibration table, and none was given (--kv-scales FILE; "
                  "eval also --calibration-text FILE): per_block, per_token_head and "
                  "per_group:N need none",
                  Name(side.granularity));
    }
  }
  return {};
}

Result<std::vector<KvCacheSpec>> LayerSpecs(const CacheModel& model,
                                            const CachePlanOptions& options,
                                            std::vector<std::string>* notes) {
  TQ_ASSIGN_OR_RETURN(const KvSidePair sides,
                      ParseKvFormat(options.kv_cache_dtype, options.kv_scale_granularity,
                                    options.kv_transform, notes));
  std::vector<KvCacheSpec> layers;
  for (const KvLayerHeads& layer : model.layers) {
    layers.push_back({.k = sides.k,
                      .v = sides.v,
                      .num_kv_heads = layer.num_kv_heads,
                      .head_dim = layer.head_dim,
                      .block_size = options.block_size});
  }
  TQ_RETURN_IF_ERROR(ApplyOverrides(options, &layers, notes));
  for (const KvCacheSpec& layer : layers) TQ_RETURN_IF_ERROR(layer.Validate());
  TQ_RETURN_IF_ERROR(CheckScales(layers, options));
  return layers;
}

// "int8/int8 per_token_head", or "0-3 f16/f16, 4-29 int8/int8 per_token_head", or, where that would
// be a long list, "11 formats by layer".
std::string DescribeFormats(const std::vector<KvCacheSpec>& layers) {
  constexpr size_t kMostRuns = 5;
  std::string text;
  size_t runs = 0;
  std::set<std::string> formats;
  for (size_t first = 0; first < layers.size();) {
    size_t end = first + 1;
    while (end < layers.size() && layers[end] == layers[first]) ++end;
    if (first == 0 && end == layers.size()) return layers[0].ToString();
    const std::string range =
        end - first == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1);
    text += fmt::format("{}{} {}", first == 0 ? "" : ", ", range, layers[first].ToString());
    first = end;
    ++runs;
    formats.insert(layers[first - 1].ToString());
  }
  if (runs > kMostRuns) return fmt::format("{} formats by layer", formats.size());
  return text;
}

uint64_t BlockBytes(const std::vector<KvCacheSpec>& layers) {
  uint64_t bytes = 0;
  for (const KvCacheSpec& spec : layers) bytes += spec.BytesPerBlock();
  return bytes;
}

Status CheckOptions(const CacheModel& model, const CachePlanOptions& options) {
  const auto fail = [](std::string message) {
    return std::unexpected(Error{ErrorCode::kInvalidArgument, std::move(message)});
  };
  if (options.max_num_seqs < 1)
    return fail(fmt::format("--max-num-seqs {}: must be at least 1", options.max_num_seqs));
  if (options.max_model_len < 0) {
    return fail(fmt::format("--max-model-len {}: must be at least 1", options.max_model_len));
  }
  if (options.max_model_len == 0 && model.max_context <= 0) {
    return fail("the model names no context length: give --max-model-len");
  }
  if (!(options.memory_utilization > 0 && options.memory_utilization <= 1)) {
    return fail(fmt::format("--memory-utilization {}: must be above 0 and at most 1",
                            options.memory_utilization));
  }
  if (options.num_sink_tokens < 0 || options.num_sink_tokens > kSinkTileTokens) {
    return fail(
        fmt::format("{} sink tokens: must be 0 to {}", options.num_sink_tokens, kSinkTileTokens));
  }
  if (options.num_recent_tokens < 0 || options.num_recent_tokens > kMaxRecentTokens) {
    return fail(fmt::format("--kv-recent-tokens {}: must be 0 to {}", options.num_recent_tokens,
                            kMaxRecentTokens));
  }
  return {};
}

// Whole blocks of recent tokens, and the note that says so.
Status SetRecentTokens(const CachePlanOptions& options, CachePlan* plan) {
  if (options.num_recent_tokens == 0) return {};
  const std::vector<KvCacheSpec>& layers = plan->config.layers;
  if (std::ranges::none_of(layers,
                           [](const KvCacheSpec& spec) { return RecentSpec(spec).has_value(); })) {
    return Fail(ErrorCode::kInvalidArgument,
                "--kv-recent-tokens {}: no layer of {} has dynamic codes of fewer than 8 bits "
                "that int8 copies would stand in for",
                options.num_recent_tokens, plan->formats);
  }
  const int blocks = (options.num_recent_tokens + options.block_size - 1) / options.block_size;
  plan->config.num_recent_tokens = blocks * options.block_size;
  plan->formats += fmt::format(", newest {} int8", plan->config.num_recent_tokens);
  return {};
}

// Sizes of a cache with these layers under a budget.
struct Fit {
  uint64_t block_bytes, sequence_bytes;
  int64_t num_blocks;  // that the budget allows beside what sequences hold of their own
};

Fit FitBlocks(const KvCacheConfig& config, uint64_t budget) {
  Fit fit{};
  fit.block_bytes = BlockBytes(config.layers);
  fit.sequence_bytes =
      ProductOf({static_cast<uint64_t>(config.max_num_seqs), BytesPerSequence(config)});
  const uint64_t left = budget > fit.sequence_bytes ? budget - fit.sequence_bytes : 0;
  fit.num_blocks = static_cast<int64_t>(std::min<uint64_t>(left / fit.block_bytes, kMaxBlocks));
  return fit;
}

// " --kv-cache-dtype int4" if that would hold num_blocks within the budget where the present format
// does not.
std::string FormatThatFits(const KvCacheConfig& config, const CacheModel& model,
                           const CachePlanOptions& options, uint64_t budget, int64_t num_blocks) {
  for (const char* dtype : {"int8", "int6", "int4"}) {
    CachePlanOptions other = options;
    other.kv_cache_dtype = dtype;
    other.kv_scale_granularity.clear();
    other.kv_transform.clear();
    other.kv_cache_dtype_layers.clear();
    KvCacheConfig smaller = config;  // with the recent tokens
    std::vector<std::string> notes;
    auto layers = LayerSpecs(model, other, &notes);
    if (!layers) continue;
    smaller.layers = std::move(*layers);
    if (FitBlocks(smaller, budget).num_blocks >= num_blocks)
      return fmt::format("--kv-cache-dtype {}", dtype);
  }
  return "";
}

std::unexpected<Error> DoesNotFit(const KvCacheConfig& config, const CacheModel& model,
                                  const CachePlanOptions& options, uint64_t budget,
                                  int max_model_len) {
  const Fit fit = FitBlocks(config, budget);
  const int64_t needed_blocks = BlocksNeeded(options.block_size, max_model_len, 1);
  const uint64_t needed =
      SumOf({static_cast<uint64_t>(needed_blocks) * fit.block_bytes, fit.sequence_bytes});
  std::vector<std::string> ways;
  // A sequence fills its last block's tail before it needs another block.
  if (fit.num_blocks > 0)
    ways.push_back(
        fmt::format("--max-model-len {}", (fit.num_blocks + 1) * options.block_size - 1));
  if (std::string format = FormatThatFits(config, model, options, budget, needed_blocks);
      !format.empty()) {
    ways.push_back(std::move(format));
  }
  if (ways.empty() && config.max_num_seqs > 1) {
    const uint64_t own = BytesPerSequence(config);
    const uint64_t blocks = static_cast<uint64_t>(needed_blocks) * fit.block_bytes;
    if (budget > blocks + own)
      ways.push_back(fmt::format("--max-num-seqs {}", (budget - blocks) / own));
  }
  std::string text;
  for (const std::string& way : ways)
    text += fmt::format("{}{}", text.empty() ? "; would fit: " : ", or ", way);
  return Fail(ErrorCode::kOutOfMemory,
              "a context of {} tokens needs {} of KV cache ({}, {} sequences), {} are available{}",
              max_model_len, FormatBytes(needed), DescribeFormats(config.layers),
              config.max_num_seqs, FormatBytes(budget), text);
}

// Context per sequence, and the number of blocks in config.
Status SizePool(const CacheModel& model, const CachePlanOptions& options, uint64_t budget,
                CachePlan* plan) {
  KvCacheConfig& config = plan->config;
  const Fit fit = FitBlocks(config, budget);
  const int block_size = options.block_size;
  const int wanted = options.max_model_len > 0 ? options.max_model_len : model.max_context;
  plan->max_model_len = wanted;
  if (fit.num_blocks < BlocksNeeded(block_size, wanted, 1)) {
    if (options.max_model_len > 0 || fit.num_blocks < 1)
      return DoesNotFit(config, model, options, budget, wanted);
    plan->max_model_len = static_cast<int>(fit.num_blocks) * block_size;
    plan->notes.push_back(
        fmt::format("context cut from the model's {} to {} tokens, which fit in {}", wanted,
                    plan->max_model_len, FormatBytes(budget)));
  }
  if (model.max_context > 0 && wanted > model.max_context) {
    plan->notes.push_back(fmt::format("context of {} tokens: the model was trained for {}", wanted,
                                      model.max_context));
  }
  const int64_t useful = BlocksNeeded(block_size, plan->max_model_len, config.max_num_seqs);
  config.num_blocks =
      static_cast<int>(options.kv_cache_memory ? fit.num_blocks : std::min(useful, fit.num_blocks));
  if (config.num_blocks < useful) {
    plan->notes.push_back(fmt::format("the pool holds {} tokens, {} sequences of {} would need {}",
                                      plan->PoolTokens(), config.max_num_seqs, plan->max_model_len,
                                      useful * block_size));
  }
  plan->block_bytes = fit.block_bytes;
  plan->sequence_bytes = fit.sequence_bytes;
  plan->pool_bytes = static_cast<uint64_t>(config.num_blocks) * fit.block_bytes;
  return {};
}

void AddStaticScales(const CachePlanOptions& options, CachePlan* plan) {
  if (options.calibration == nullptr) return;
  const CalibrationTable& table = *options.calibration;
  CHECK_EQ(table.layers.size(), plan->config.layers.size());
  size_t num_layers = 0, num_scales = 0;
  for (size_t i = 0; i < table.layers.size(); ++i) {
    const KvStaticScales& scales = plan->config.static_scales.emplace_back(
        StaticScales(table.layers[i], plan->config.layers[i]));
    const size_t of_layer = scales.k.size() + scales.v.size() + scales.k_balance.size();
    num_layers += of_layer == 0 ? 0 : 1;
    num_scales += of_layer;
  }
  plan->notes.push_back(fmt::format(
      "calibration table ({}, {} tokens): {} static scales and factors in {} of {} layers",
      table.clip_rule, table.num_tokens, num_scales, num_layers, table.layers.size()));
}

// What does not depend on memory.
Result<CachePlan> StartPlan(const CacheModel& model, const CachePlanOptions& options) {
  TQ_RETURN_IF_ERROR(CheckOptions(model, options));
  CachePlan plan;
  plan.max_num_seqs = options.max_num_seqs;
  TQ_ASSIGN_OR_RETURN(plan.config.layers, LayerSpecs(model, options, &plan.notes));
  AddStaticScales(options, &plan);
  plan.config.max_num_seqs = options.max_num_seqs;
  plan.config.num_sink_tokens = options.num_sink_tokens;
  uint64_t values_per_token = 0;
  for (const KvCacheSpec& spec : plan.config.layers) {
    values_per_token +=
        2 * static_cast<uint64_t>(spec.num_kv_heads) * static_cast<uint64_t>(spec.head_dim);
  }
  plan.block_bytes = BlockBytes(plan.config.layers);
  plan.f16_bytes_per_token = 2 * values_per_token;
  plan.bytes_per_token = static_cast<double>(plan.block_bytes) / options.block_size;
  plan.bits_per_value = 8 * plan.bytes_per_token / static_cast<double>(values_per_token);
  plan.formats = DescribeFormats(plan.config.layers);
  TQ_RETURN_IF_ERROR(SetRecentTokens(options, &plan));
  return plan;
}

}  // namespace

Result<uint64_t> CacheBudget(const CachePlanOptions& options, const MemoryBudget& memory) {
  const auto share = static_cast<uint64_t>(
      std::floor(options.memory_utilization * static_cast<double>(memory.usable_bytes)));
  const uint64_t limit = share > memory.reserved_bytes ? share - memory.reserved_bytes : 0;
  if (!options.kv_cache_memory) {
    if (limit > 0) return limit;
    return Fail(
        ErrorCode::kOutOfMemory,
        "no memory for the KV cache: weights and buffers take {} of {} ({} of the usable {})",
        FormatBytes(memory.reserved_bytes), FormatBytes(share), options.memory_utilization,
        FormatBytes(memory.usable_bytes));
  }
  // Asked for by size, it may take what is there.
  const uint64_t left = memory.usable_bytes - std::min(memory.usable_bytes, memory.reserved_bytes);
  if (*options.kv_cache_memory <= left) return *options.kv_cache_memory;
  return Fail(
      ErrorCode::kOutOfMemory, "--kv-cache-memory {}: {} are left beside weights and buffers ({})",
      FormatBytes(*options.kv_cache_memory), FormatBytes(left), FormatBytes(memory.reserved_bytes));
}

int64_t CachePlan::PoolTokens() const {
  return static_cast<int64_t>(config.num_blocks) * config.layers.at(0).block_size;
}

int64_t BlocksNeeded(int block_size, int64_t max_model_len, int64_t num_seqs) {
  const auto each = static_cast<uint64_t>(std::max<int64_t>(max_model_len / block_size, 1));
  const uint64_t blocks = ProductOf({each, static_cast<uint64_t>(num_seqs)});
  return static_cast<int64_t>(std::min<uint64_t>(blocks, std::numeric_limits<int64_t>::max()));
}

CacheModel CacheModelOf(const ModelConfig& model) {
  const KvLayerHeads heads = {.num_kv_heads = model.num_kv_heads, .head_dim = model.head_dim};
  return {.layers = std::vector<KvLayerHeads>(static_cast<size_t>(model.num_layers), heads),
          .max_context = model.max_context};
}

Result<CachePlan> PlanCache(const CacheModel& model, const CachePlanOptions& options,
                            const MemoryBudget& memory) {
  TQ_ASSIGN_OR_RETURN(CachePlan plan, StartPlan(model, options));
  TQ_ASSIGN_OR_RETURN(const uint64_t budget, CacheBudget(options, memory));
  TQ_RETURN_IF_ERROR(SizePool(model, options, budget, &plan));
  return plan;
}

Result<CachePlan> PlanCache(const ModelConfig& model, const CachePlanOptions& options,
                            const MemoryBudget& memory) {
  return PlanCache(CacheModelOf(model), options, memory);
}

Result<CachePlan> PlanWithoutLimit(const CacheModel& model, const CachePlanOptions& options) {
  TQ_ASSIGN_OR_RETURN(CachePlan plan, StartPlan(model, options));
  plan.max_model_len = options.max_model_len > 0 ? options.max_model_len : model.max_context;
  const int64_t blocks = BlocksNeeded(options.block_size, plan.max_model_len, options.max_num_seqs);
  plan.config.num_blocks = static_cast<int>(std::min<int64_t>(blocks, kMaxBlocks));
  plan.pool_bytes = ProductOf({static_cast<uint64_t>(blocks), plan.block_bytes});
  plan.sequence_bytes =
      ProductOf({static_cast<uint64_t>(options.max_num_seqs), BytesPerSequence(plan.config)});
  return plan;
}

}  // namespace turboquant
