// The model families whose config.json is understood: how each says what its layers store, and how
// its parameters are counted. Only for planner/hf_*.cc.
#ifndef TURBOQUANT_PLANNER_HF_FAMILY_H_
#define TURBOQUANT_PLANNER_HF_FAMILY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "planner/hf_fields.h"
#include "planner/model_shape.h"

namespace turboquant {

// Which layers see only a window, where "layer_types" does not say.
enum class SlidingRule : uint8_t {
  kNever,
  kAll,          // all, where "sliding_window" is a number
  kUpperLayers,  // from "max_window_layers" on, where "use_sliding_window" is true
  kEveryOther,   // layers 0, 2, 4, ...
  kPattern,      // all but every "sliding_window_pattern"-th
};

enum class LayerRule : uint8_t {
  kGrouped,      // K and V of num_key_value_heads heads
  kLatent,       // MLA
  kLinear,       // Gated DeltaNet in all but every "full_attention_interval"-th layer
  kSharedUpper,  // the last "num_kv_shared_layers" read the cache of layers before
};

enum class ParameterRule : uint8_t {
  kGated,        // gate, up and down of intermediate_size
  kMixtral,      // num_local_experts of intermediate_size
  kQwenExperts,  // num_experts of moe_intermediate_size
  kDeepSeek,     // dense layers first, then routed and shared experts
  kUnknown,      // not counted: the weights must be given or lie beside the config
};

struct HfFamily {
  std::string_view model_type;
  LayerRule layers = LayerRule::kGrouped;
  SlidingRule sliding = SlidingRule::kNever;
  ParameterRule parameters = ParameterRule::kGated;
  bool tied = false;         // default of "tie_word_embeddings"
  bool qkv_bias = false;     // biases of q, k and v whatever "attention_bias" says
  int norms_per_layer = 2;   // of hidden_size
  bool head_norms = false;   // norms of head_dim on q and k
  int default_head_dim = 0;  // 0: hidden_size / num_attention_heads
  int default_vocab = 0, default_context = 0, default_pattern = 0;  // 0: must be there, or unknown
};

// Null for a family that is not known.
const HfFamily* FindHfFamily(std::string_view model_type);
std::string HfFamilyNames();  // "deepseek_v2, deepseek_v3, ..."

// Sizes that all families have.
struct HfSizes {
  int num_layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0;
  int vocab = 0;
};

// Fills num_parameters and the counts of experts. `sizes` and shape->layers are read already.
Status CountParameters(const HfFamily& family, const HfFields& fields, const HfSizes& sizes,
                       ModelShape* shape);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_HF_FAMILY_H_
