// Building blocks of a step's graph, shared by the architectures (arch/*.cc). Only for model/.
// Shapes in ggml's order (ne[0] first); `rows` are the tokens of the step, of all its sequences.
#ifndef TURBOQUANT_MODEL_GRAPH_BUILDER_H_
#define TURBOQUANT_MODEL_GRAPH_BUILDER_H_

#include <span>
#include <string>
#include <string_view>

#include "attention/paged_attention.h"
#include "model/arch/registry.h"
#include "model/ggml_support.h"
#include "model/matmul_node.h"
#include "model/model.h"
#include "model/weights.h"

namespace turboquant {

// What the attention nodes of a graph point to. Outlives the graph; `attention` is set before each
// step, so that a graph can be used again.
struct AttentionNode {
  PagedAttention* const* attention;
  int layer;
};

class GraphBuilder {
 public:
  struct Options {
    ggml_context* context;
    ggml_cgraph* graph;
    const ModelConfig* config;
    const ModelWeights* weights;
    RopeStyle rope_style;
    std::span<AttentionNode> attention_nodes;  // one per layer
    MatmulNodes* products;                     // outlives the graph
    int num_rows;                              // > 0
    int num_outputs;  // rows whose logits are wanted; 0: the step only fills the cache
  };
  explicit GraphBuilder(const Options& options);

  const ModelConfig& config() const { return *options_.config; }

  // Weights by name. Required ones were checked at load.
  ggml_tensor* Required(std::string_view name) const;
  ggml_tensor* Optional(std::string_view name) const { return options_.weights->Find(name); }

  ggml_tensor* TokenEmbedding();  // [hidden, rows]
  ggml_tensor* Add(ggml_tensor* a, ggml_tensor* b);
  ggml_tensor* RmsNorm(ggml_tensor* x, int layer,
                       std::string_view name);  // times blk.<layer>.<name>.weight
  // blk.<layer>.<name>.weight * x, plus the bias of that name if there is one.
  ggml_tensor* Linear(ggml_tensor* x, int layer, std::string_view name);
  ggml_tensor* SplitHeads(ggml_tensor* x, int num_heads);  // [head_dim, heads, rows]
  ggml_tensor* Rope(ggml_tensor* heads, ggml_tensor* factors = nullptr);
  // Stores k, v and attends. q, k: [head_dim, heads, rows]; v: [kv heads * head_dim, rows] ->
  // [heads * head_dim, rows].
  ggml_tensor* Attention(int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v);
  // x + attn_output * attended. After the last layer only the rows whose logits are wanted go on.
  ggml_tensor* AttentionResidual(ggml_tensor* x, ggml_tensor* attended, int layer);
  ggml_tensor* GatedFeedForward(ggml_tensor* x, int layer);  // down(silu(gate(x)) * up(x))
  ggml_tensor* Logits(ggml_tensor* x);  // output norm and matrix: [vocab, outputs]

  // Inputs, i32: ids [rows], positions [rows], rows of the outputs [max(outputs, 1)].
  ggml_tensor* tokens() const { return tokens_; }
  ggml_tensor* positions() const { return positions_; }
  ggml_tensor* output_rows() const { return output_rows_; }

 private:
  ggml_tensor* Input(int size, const char* name);
  ggml_tensor* Norm(ggml_tensor* x, ggml_tensor* weight);

  Options options_;
  ggml_context* context_;
  ggml_tensor* tokens_;
  ggml_tensor* positions_;
  ggml_tensor* output_rows_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_GRAPH_BUILDER_H_
