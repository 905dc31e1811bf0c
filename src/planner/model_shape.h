// What the ledger must know of a model: which layers keep what, and how large the rest is. Read
// from a GGUF header or a config.json, never from weights.
#ifndef TURBOQUANT_PLANNER_MODEL_SHAPE_H_
#define TURBOQUANT_PLANNER_MODEL_SHAPE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/gguf.h"
#include "model/model.h"

namespace turboquant {

// What a layer remembers of the tokens before.
enum class LayerKind : uint8_t {
  kFull,       // K and V of every token
  kSliding,    // K and V of the last `window` tokens; an engine may keep more
  kShared,     // reads K and V of another layer, stores none
  kLatent,     // one compressed vector per token for all heads (MLA), on every rank
  kRecurrent,  // a state of fixed size per sequence
};
std::string_view Name(LayerKind kind);  // "full", "sliding", ...

struct LayerShape {
  LayerKind kind = LayerKind::kFull;
  int num_kv_heads = 0;  // 1 for kLatent, 0 for kShared and kRecurrent
  int k_dim = 0;         // channels per head; kLatent: the latent and its rotary part
  int v_dim = 0;         // channels per head; kLatent: 0, values are read from the latent
  int window = 0;        // kSliding: tokens, the query itself included
  // kRecurrent, values per sequence: of the convolution and of the state proper.
  uint64_t conv_values = 0, state_values = 0;

  bool StoresTokens() const {
    return kind == LayerKind::kFull || kind == LayerKind::kSliding || kind == LayerKind::kLatent;
  }
  // K and V values of one token; 0 where none are stored.
  uint64_t ValuesPerToken() const {
    return static_cast<uint64_t>(num_kv_heads) * static_cast<uint64_t>(k_dim + v_dim);
  }
  bool operator==(const LayerShape&) const = default;
};

// Where a figure comes from.
enum class Origin : uint8_t {
  kExact,     // the arithmetic that allocates, or sizes written in a file
  kMeasured,  // on this machine, by this program
  kModelled,  // a formula or a constant fitted to measurements
};
std::string_view Name(Origin origin);  // "exact", "measured", "modelled"

struct ModelShape {
  std::string architecture;  // "llama", "LlamaForCausalLM"
  std::string name;
  std::string path;  // file it was read from, for messages
  bool is_gguf = false;
  std::vector<LayerShape> layers;
  int num_heads = 0, hidden_size = 0, vocab_size = 0;
  int intermediate_size = 0;  // widest that one token passes through
  int max_context = 0;        // as trained; 0 = not said

  uint64_t num_parameters = 0;     // 0 = not known
  uint64_t active_parameters = 0;  // read for one token; less where experts are chosen
  // Of num_parameters, in experts that are chosen, and how many of how many per token; else 0.
  uint64_t expert_parameters = 0;
  int num_experts = 0, experts_per_token = 0;

  uint64_t weights_bytes = 0;
  Origin weights_origin = Origin::kModelled;
  std::string weights_note;  // "tensors of the file", "7.6e9 parameters of 2 bytes"

  std::vector<std::string> notes;
  std::string cannot_run;  // why `turboquant run` refuses the model; empty where it does not
};

// Shape of a model that this build runs; weights_bytes are left to the caller.
ModelShape ModelShapeOf(const ModelConfig& config);

// Reads either kind of file; a folder stands for the config.json in it. kUnsupported names an
// architecture that is not known: its layers are never guessed. kCorrupt: not such a file, or a
// number missing or out of range.
Result<ModelShape> ReadModelShape(const std::string& path);

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_MODEL_SHAPE_H_
