// Flags shared by all verbs that load a model, and what they build.
#ifndef TURBOQUANT_CLI_MODEL_FLAGS_H_
#define TURBOQUANT_CLI_MODEL_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "engine/engine.h"

namespace turboquant::cli {

struct ModelFlags {
  std::string model;  // empty = the default model
  std::string kv_cache_dtype = "int8";
  std::string kv_scale_granularity;
  std::string kv_transform;
  std::string kv_scales;  // path of a calibration table
  std::string kv_cache_dtype_layers;
  std::string kv_plan;  // path
  int kv_recent_tokens = 0;
  int kv_sink_tokens = 4;
  std::string kv_cache_memory;
  double memory_utilization = 0.9;
  int max_model_len = 0;
  int block_size = 64;
  int threads = 0;
  std::string isa;

  std::string ModelPath() const;
  // Reads the calibration table and the plan, where they are named, and checks them against the
  // model's file.
  Result<EngineOptions> ToEngineOptions() const;
};
void AddModelFlags(CLI::App* verb, ModelFlags* flags);
// Only those that say which model runs on what.
void AddLoadFlags(CLI::App* verb, ModelFlags* flags);

void AddSamplingFlags(CLI::App* verb, SamplingParams* params);

// $TURBOQUANT_CACHE, else $XDG_CACHE_HOME/turboquant, else ~/.cache/turboquant; then models/<the
// default model>.
std::string DefaultModelPath();

// What becomes of requests when the stop flag is set (cli/console.h).
enum class AtSignal {
  kCancel,  // the next step cancels them
  kGoOn,    // the caller sees to them
};
// Loads the model and creates the engine; logs what Engine::Describe says.
Result<std::unique_ptr<Engine>> LoadEngine(const ModelFlags& flags, int max_num_seqs,
                                           AtSignal at_signal = AtSignal::kCancel);
// Warns of static scales that do not fit what was stored so far.
void WarnOfScales(Engine* engine);

}  // namespace turboquant::cli

#endif  // TURBOQUANT_CLI_MODEL_FLAGS_H_
