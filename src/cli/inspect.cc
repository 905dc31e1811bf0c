// turboquant inspect: what a GGUF holds and what its cache costs, without loading weights.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "model/gguf.h"
#include "model/hyperparameters.h"

namespace turboquant::cli {
namespace {

struct InspectFlags {
  std::string file;
  int block_size = 64;
  bool json = false;
};

// Bytes of closed blocks per token, all layers, in the format's default granularity.
double KvBytesPerToken(const ModelConfig& config, KvCacheDtype dtype, int block_size) {
  std::vector<std::string> notes;  // names of our own formats give none
  const auto sides = ParseKvFormat(Name(dtype), "", "", &notes);
  const KvCacheSpec spec{.k = sides->k,
                         .v = sides->v,
                         .num_kv_heads = config.num_kv_heads,
                         .head_dim = config.head_dim,
                         .block_size = block_size};
  return spec.BytesPerToken() * config.num_layers;
}

nlohmann::ordered_json ToJson(const ModelConfig& config, const Gguf& file, int block_size) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (int i = 0; i < config.num_layers; ++i) {
    layers.push_back({{"layer", i},
                      {"num_heads", config.num_heads},
                      {"num_kv_heads", config.num_kv_heads},
                      {"head_dim", config.head_dim},
                      {"sliding_window", config.sliding_window}});
  }
  nlohmann::ordered_json bytes;
  for (const KvCacheDtype dtype : kAllKvCacheDtypes) {
    bytes[std::string(Name(dtype))] = KvBytesPerToken(config, dtype, block_size);
  }
  return {{"file", file.name()},
          {"gguf_version", file.version()},
          {"architecture", config.architecture},
          {"name", config.name},
          {"num_parameters", config.num_parameters},
          {"weight_types", config.weight_types},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"vocab_size", config.vocab_size},
          {"max_context", config.max_context},
          {"rope_theta", config.rope_theta},
          {"layers", layers},
          {"block_size", block_size},
          {"kv_bytes_per_token", bytes}};
}

std::string ToText(const ModelConfig& config, const Gguf& file, int block_size) {
  std::string text = fmt::format(
      "{}: GGUF version {}, {} metadata keys, {} tensors\n"
      "model           {} ({}), {:.1f} M parameters, {}\n"
      "layers          {} x (hidden {}, feed-forward {}, vocabulary {})\n"
      "attention       {} query heads on {} KV heads of {}, sliding window {}\n"
      "context         {} tokens, rope theta {}\n\n"
      "KV cache in blocks of {} tokens, all layers (exact tails and sinks not included):\n"
      "{:<12}{:>16}{:>18}{:>10}\n",
      file.name(), file.version(), file.metadata().size(), file.tensors().size(), config.name,
      config.architecture, static_cast<double>(config.num_parameters) / 1e6, config.weight_types,
      config.num_layers, config.hidden_size, config.intermediate_size, config.vocab_size,
      config.num_heads, config.num_kv_heads, config.head_dim,
      config.sliding_window == 0 ? "none" : std::to_string(config.sliding_window),
      config.max_context, config.rope_theta, block_size, "format", "bytes per token",
      "at full context", "of f16");
  const double f16 = KvBytesPerToken(config, KvCacheDtype::kF16, block_size);
  for (const KvCacheDtype dtype : kAllKvCacheDtypes) {
    const double bytes = KvBytesPerToken(config, dtype, block_size);
    text += fmt::format("{:<12}{:>16.0f}{:>18}{:>9.1f} %\n", Name(dtype), bytes,
                        FormatBytes(static_cast<uint64_t>(bytes * config.max_context)),
                        100 * bytes / f16);
  }
  return text;
}

Result<int> Inspect(const InspectFlags& flags) {
  const std::string path = flags.file.empty() ? DefaultModelPath() : flags.file;
  TQ_ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::Open(path));
  TQ_ASSIGN_OR_RETURN(const Gguf file, Gguf::Parse(mapped.bytes(), path));
  TQ_ASSIGN_OR_RETURN(const ModelConfig config, ReadHyperparameters(file));
  TQ_RETURN_IF_ERROR(CheckTensors(file, config));
  const KvCacheSpec spec{.num_kv_heads = config.num_kv_heads,
                         .head_dim = config.head_dim,
                         .block_size = flags.block_size};
  TQ_RETURN_IF_ERROR(spec.Validate());
  Print(flags.json ? ToJson(config, file, flags.block_size)
                             .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                         "\n"
                   : ToText(config, file, flags.block_size));
  return kExitDone;
}

}  // namespace

Verb AddInspect(CLI::App* program) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* verb = program->add_subcommand(
      "inspect", "show what a GGUF holds and what its cache costs per token");
  verb->add_option("file,-m,--model", flags->file,
                   "GGUF file (default: the model that set-up installed)");
  verb->add_option("--block-size", flags->block_size, "tokens per cache block")
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "print one JSON document");
  return {verb, [flags] {
            const Result<int> status = Inspect(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
