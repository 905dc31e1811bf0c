// What the KV cache of an engine takes for so many sequences of so many tokens: ours, and those of
// llama.cpp and vLLM by their own types, padding and block sizes. Each layer is either computed as
// that engine allocates it or the model is refused by name.
#ifndef TURBOQUANT_PLANNER_CACHE_PROFILE_H_
#define TURBOQUANT_PLANNER_CACHE_PROFILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "planner/cache_plan.h"
#include "planner/model_shape.h"

namespace turboquant {

enum class EngineKind : uint8_t { kTurboquant, kLlamaCpp, kVllm };
std::string_view Name(EngineKind engine);  // "turboquant", "llama.cpp", "vllm"
Result<EngineKind> ParseEngineKind(std::string_view text);

struct ProfileOptions {
  EngineKind engine = EngineKind::kTurboquant;
  // Formats are the engine's own names. block_size 0: the engine's default. Its max_model_len and
  // max_num_seqs do not matter to Bytes.
  CachePlanOptions cache;
  int tensor_parallel_size = 1;  // vLLM only
  int max_batch_tokens = 512;    // tokens of a step: what a window may hold on top
};

// Bytes of a cache by what they hold. Per rank where there are several.
struct CacheBytes {
  uint64_t payload = 0;    // codes of K and V
  uint64_t scales = 0;     // scales and zero points
  uint64_t padding = 0;    // alignment, block and page ends, layers added to fill groups
  uint64_t sequences = 0;  // exact newest and first tokens (tails and sinks), recent copies
  uint64_t state = 0;      // recurrent layers
  uint64_t total() const;
};

// One layer, or its share on one rank.
struct LayerLedger {
  LayerShape shape;
  std::string format;  // "int8/int8 per_token_head"; empty where no tokens are stored
  // Bytes that one more token takes (up to the window, if it slides), block ends not counted.
  double payload = 0, scales = 0, padding = 0;
  double bits_per_value = 0;  // of those three; 0 where no tokens are stored
  uint64_t state_bytes = 0;   // per sequence
  double BytesPerToken() const { return payload + scales + padding; }
};

class CacheProfile {
 public:
  virtual ~CacheProfile() = default;

  // For num_seqs >= 1 sequences of context >= 1 tokens each, all at once. Never less for more of
  // either. Parts saturate at kTooManyBytes (planner/bytes.h).
  virtual CacheBytes Bytes(int64_t context, int64_t num_seqs) const = 0;
  // Bytes of cache that one decode step reads of a sequence of `context` tokens.
  virtual uint64_t BytesRead(int64_t context) const;

  EngineKind engine() const { return engine_; }
  const std::vector<LayerLedger>& layers() const { return layers_; }
  int block_size() const { return block_size_; }  // tokens
  double BytesPerToken() const;                   // sum over layers
  double BitsPerValue() const;                    // over all layers that store tokens
  const std::string& formats() const { return formats_; }
  // What is different from what the model's files say, and why.
  const std::vector<std::string>& notes() const { return notes_; }

 protected:
  EngineKind engine_ = EngineKind::kTurboquant;
  std::vector<LayerLedger> layers_;
  int block_size_ = 0;
  std::string formats_;
  std::vector<std::string> notes_;
};

// kInvalidArgument: a flag is wrong for the engine. kUnsupported: the engine, or this model of it,
// cannot hold such layers.
Result<std::unique_ptr<const CacheProfile>> MakeCacheProfile(const ModelShape& model,
                                                             const ProfileOptions& options);

// What our own cache must know of a model. kUnsupported names the first layer that it cannot hold.
Result<CacheModel> CacheModelOf(const ModelShape& model);

// Format that the engine has if none is asked for.
std::string_view DefaultFormat(EngineKind engine);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_CACHE_PROFILE_H_
