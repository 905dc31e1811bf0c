#include "planner/cache_profile.h"

#include <algorithm>

#include "planner/bytes.h"
#include "planner/profiles.h"

namespace turboquant {

std::string_view Name(EngineKind engine) {
  switch (engine) {
    case EngineKind::kTurboquant:
      return "turboquant";
    case EngineKind::kLlamaCpp:
      return "llama.cpp";
    case EngineKind::kVllm:
      return "vllm";
  }
  return "";
}

Result<EngineKind> ParseEngineKind(std::string_view text) {
  for (const EngineKind engine :
       {EngineKind::kTurboquant, EngineKind::kLlamaCpp, EngineKind::kVllm}) {
    if (text == Name(engine)) return engine;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "--engine '{}': known are turboquant, llama.cpp and vllm", text);
}

std::string_view DefaultFormat(EngineKind engine) {
  switch (engine) {
    case EngineKind::kTurboquant:
      return "int8";
    case EngineKind::kLlamaCpp:
      return "f16";
    case EngineKind::kVllm:
      return "auto";
  }
  return "";
}

uint64_t CacheBytes::total() const { return SumOf({payload, scales, padding, sequences, state}); }

double CacheProfile::BytesPerToken() const {
  double bytes = 0;
  for (const LayerLedger& layer : layers_) bytes += layer.BytesPerToken();
  return bytes;
}

double CacheProfile::BitsPerValue() const {
  double values = 0;
  for (const LayerLedger& layer : layers_) {
    if (layer.BytesPerToken() > 0) {
      values += static_cast<double>(layer.shape.ValuesPerToken());
    }
  }
  return values > 0 ? 8 * BytesPerToken() / values : 0;
}

uint64_t CacheProfile::BytesRead(int64_t context) const {
  double bytes = 0;
  for (const LayerLedger& layer : layers_) {
    const int64_t window = layer.shape.kind == LayerKind::kSliding ? layer.shape.window : context;
    bytes += layer.BytesPerToken() * static_cast<double>(std::min(window, context)) +
             static_cast<double>(layer.state_bytes);
  }
  return static_cast<uint64_t>(bytes);
}

Result<std::unique_ptr<const CacheProfile>> MakeCacheProfile(const ModelShape& model,
                                                             const ProfileOptions& options) {
  if (options.tensor_parallel_size < 1) {
    return Fail(ErrorCode::kInvalidArgument, "--tensor-parallel-size {}: must be at least 1",
                options.tensor_parallel_size);
  }
  if (options.engine != EngineKind::kVllm && options.tensor_parallel_size > 1) {
    return Fail(ErrorCode::kUnsupported,
                "--tensor-parallel-size {}: {} holds the cache in one process; --engine vllm "
                "splits it",
                options.tensor_parallel_size, Name(options.engine));
  }
  switch (options.engine) {
    case EngineKind::kTurboquant:
      return MakeTurboquantProfile(model, options);
    case EngineKind::kLlamaCpp:
      return MakeLlamaCppProfile(model, options);
    case EngineKind::kVllm:
      return MakeVllmProfile(model, options);
  }
  return Fail(ErrorCode::kInvalidArgument, "no such engine");
}

}  // namespace turboquant
