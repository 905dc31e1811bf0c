#include "cli/model_flags.h"

#include <spdlog/spdlog.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"
#include "calibration/calibration_table.h"
#include "calibration/kv_plan.h"
#include "cli/console.h"
#include "model/fingerprint.h"

namespace turboquant::cli {
namespace {

constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string DefaultModelPath() {
  namespace fs = std::filesystem;
  fs::path cache = Environment("TURBOQUANT_CACHE");
  if (cache.empty()) {
    const std::string xdg = Environment("XDG_CACHE_HOME");
    cache = xdg.empty() ? fs::path(Environment("HOME")) / ".cache" / "turboquant"
                        : fs::path(xdg) / "turboquant";
  }
  return (cache / "models" / kDefaultModel).string();
}

static Result<std::shared_ptr<const CalibrationTable>> LoadCalibration(
    const std::string& path, const std::string& model_path) {
  TQ_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  TQ_ASSIGN_OR_RETURN(CalibrationTable table, ParseCalibrationTable(json, path));
  TQ_ASSIGN_OR_RETURN(const ModelFingerprint model, FingerprintModel(model_path));
  if (const Status fits = table.CheckModel(model); !fits) {
    return Fail(fits.error().code, "{}: {}", path, fits.error().message);
  }
  return std::make_shared<const CalibrationTable>(std::move(table));
}

// The overrides by layer that a plan amounts to.
static Result<std::string> LoadPlan(const std::string& path, const std::string& model_path) {
  TQ_ASSIGN_OR_RETURN(const std::string json, ReadFile(path));
  TQ_ASSIGN_OR_RETURN(const KvPlan plan, ParseKvPlan(json, path));
  TQ_ASSIGN_OR_RETURN(const ModelFingerprint model, FingerprintModel(model_path));
  if (const Status fits = plan.CheckModel(model); !fits) {
    return Fail(fits.error().code, "{}: {}", path, fits.error().message);
  }
  return plan.ToOverrides();
}

std::string ModelFlags::ModelPath() const { return model.empty() ? DefaultModelPath() : model; }

Result<EngineOptions> ModelFlags::ToEngineOptions() const {
  EngineOptions options;
  options.cache.kv_cache_dtype = kv_cache_dtype;
  options.cache.kv_scale_granularity = kv_scale_granularity;
  options.cache.kv_transform = kv_transform;
  options.cache.kv_cache_dtype_layers = kv_cache_dtype_layers;
  if (!kv_plan.empty()) {
    if (!kv_cache_dtype_layers.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "--kv-plan and --kv-cache-dtype-layers both say what layers are: give one");
    }
    TQ_ASSIGN_OR_RETURN(options.cache.kv_cache_dtype_layers, LoadPlan(kv_plan, ModelPath()));
  }
  options.cache.num_recent_tokens = kv_recent_tokens;
  options.cache.num_sink_tokens = kv_sink_tokens;
  options.cache.block_size = block_size;
  options.cache.max_model_len = max_model_len;
  options.cache.memory_utilization = memory_utilization;
  if (!kv_cache_memory.empty()) {
    TQ_ASSIGN_OR_RETURN(options.cache.kv_cache_memory, ParseSize(kv_cache_memory));
  }
  if (!kv_scales.empty()) {
    TQ_ASSIGN_OR_RETURN(options.cache.calibration, LoadCalibration(kv_scales, ModelPath()));
  }
  options.num_threads = threads;
  options.isa = isa;
  options.stop = &StopFlag();
  return options;
}

constexpr const char* kModelGroup = "Model and cache";

void AddLoadFlags(CLI::App* verb, ModelFlags* flags) {
  verb->add_option("-m,--model", flags->model,
                   "GGUF file (default: the model that set-up installed)")
      ->group(kModelGroup);
  verb->add_option("-t,--threads", flags->threads, "threads (default: physical cores)")
      ->group(kModelGroup)
      ->check(CLI::Range(1, 1024));
  verb->add_option("--isa", flags->isa,
                   "force scalar, avx2, avx512 or neon (default: the best here)")
      ->group(kModelGroup);
}

void AddModelFlags(CLI::App* verb, ModelFlags* flags) {
  AddLoadFlags(verb, flags);
  verb->add_option(
          "--kv-cache-dtype", flags->kv_cache_dtype,
          "format of K and V: f32 f16 bf16 int8 fp8_e4m3 fp8_e5m2 int6 int5 int4 int3 int2 "
          "int4_sym int4_asym, or K/V as int6/int4")
      ->group(kModelGroup)
      ->capture_default_str();
  verb->add_option(
          "--kv-scale-granularity", flags->kv_scale_granularity,
          "per_token_head_u8, per_token_head, per_group:32|64|128, per_block, per_head, "
          "per_channel, per_tensor, none; static ones (per_head, per_channel, per_tensor) are "
          "corrected "
          "in blocks that leave the range, unless ':fixed' follows; K and V apart with '/' "
          "(default: per format)")
      ->group(kModelGroup);
  verb->add_option("--kv-scales", flags->kv_scales,
                   "calibration table of this model, for static scales and balanced keys "
                   "(turboquant calibrate)")
      ->group(kModelGroup);
  verb->add_option(
          "--kv-transform", flags->kv_transform,
          "none, rotated, or (K) centered or balanced (with --kv-scales) before quantization; "
          "K and V apart with '/' "
          "(default: centered/rotated with per_token_head_u8, none with per_channel, else "
          "rotated)")
      ->group(kModelGroup);
  verb->add_option("--kv-cache-dtype-layers", flags->kv_cache_dtype_layers,
                   "overrides by layer, e.g. 0-3:f16,28-29:int8")
      ->group(kModelGroup);
  verb->add_option("--kv-plan", flags->kv_plan,
                   "formats of all layers of this model (turboquant tune)")
      ->group(kModelGroup);
  verb->add_option("--kv-recent-tokens", flags->kv_recent_tokens,
                   "newest tokens that are read in int8 where the format has fewer bits")
      ->group(kModelGroup)
      ->capture_default_str();
  verb->add_option("--kv-sink-tokens", flags->kv_sink_tokens,
                   "first tokens that stay exact, 0 to 16")
      ->group(kModelGroup)
      ->capture_default_str();
  verb->add_option("--kv-cache-memory", flags->kv_cache_memory,
                   "bytes for the cache, e.g. 512Mi or 2G")
      ->group(kModelGroup);
  verb->add_option("--memory-utilization", flags->memory_utilization,
                   "share of usable memory for weights, cache and buffers")
      ->group(kModelGroup)
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  verb->add_option("--max-model-len", flags->max_model_len,
                   "context per sequence in tokens (default: the model's, capped by memory)")
      ->group(kModelGroup)
      ->check(CLI::Range(1, 1 << 26));
  verb->add_option("--block-size", flags->block_size,
                   "tokens per cache block: 16, 32, 64, 128 or 256")
      ->group(kModelGroup)
      ->capture_default_str();
}

void AddSamplingFlags(CLI::App* verb, SamplingParams* params) {
  constexpr const char* kGroup = "Sampling";
  verb->add_option("--seed", params->seed, "seed of the random numbers")
      ->group(kGroup)
      ->capture_default_str();
  verb->add_option("--temperature", params->temperature, "0 = always the likeliest token")
      ->group(kGroup)
      ->capture_default_str();
  verb->add_option("--top-p", params->top_p,
                   "sample from the likeliest tokens of this total probability")
      ->group(kGroup)
      ->capture_default_str();
  verb->add_option("--top-k", params->top_k, "sample from the k likeliest tokens; 0 = all")
      ->group(kGroup)
      ->capture_default_str();
  verb->add_option("--min-p", params->min_p, "drop tokens below this share of the likeliest one")
      ->group(kGroup)
      ->capture_default_str();
  verb->add_option("--repetition-penalty", params->repetition_penalty,
                   "above 1 discourages repetition")
      ->group(kGroup)
      ->capture_default_str();
}

Result<std::unique_ptr<Engine>> LoadEngine(const ModelFlags& flags, int max_num_seqs,
                                           AtSignal at_signal) {
  TQ_ASSIGN_OR_RETURN(EngineOptions options, flags.ToEngineOptions());
  if (at_signal == AtSignal::kGoOn) options.stop = nullptr;
  options.cache.max_num_seqs = max_num_seqs;
  TQ_ASSIGN_OR_RETURN(auto model, Model::Load({.path = flags.ModelPath()}));
  TQ_ASSIGN_OR_RETURN(auto engine, Engine::Create(std::move(model), std::move(options)));
  for (const std::string& line : engine->Describe()) spdlog::info("{}", line);
  for (const std::string& line : engine->Warnings()) spdlog::warn("{}", line);
  return engine;
}

void WarnOfScales(Engine* engine) {
  const SaturationCounts& counts = engine->runner().attention().saturation();
  for (const std::string& line : SaturationWarnings(counts, engine->plan().config.layers)) {
    spdlog::warn("{}", line);
  }
}

}  // namespace turboquant::cli
