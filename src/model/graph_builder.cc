#include "model/graph_builder.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace turboquant {
namespace {

// Attention as three nodes: ggml puts a barrier between any two, so all keys and values of the
// layer are stored before the first query attends, and all partial results are there before they
// are merged. ggml may call these with fewer threads than asked for; nothing may be thrown here.

size_t Stride(const ggml_tensor* tensor, int dimension) {
  return tensor->nb[dimension] / sizeof(float);
}

void StoreKvNode(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto* node = static_cast<const AttentionNode*>(userdata);
  const ggml_tensor* k = dst->src[0];
  const ggml_tensor* v = dst->src[1];
  (*node->attention)
      ->StoreKv(node->layer, static_cast<const float*>(k->data), Stride(k, 2),
                static_cast<const float*>(v->data), Stride(v, 1), ith, nth);
}

void AttendNode(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto* node = static_cast<const AttentionNode*>(userdata);
  const ggml_tensor* q = dst->src[0];
  (*node->attention)
      ->Attend(node->layer, static_cast<const float*>(q->data), Stride(q, 2),
               static_cast<float*>(dst->data), Stride(dst, 1), ith, nth);
}

void MergeNode(ggml_tensor* dst, int ith, int nth, void* userdata) {
  const auto* node = static_cast<const AttentionNode*>(userdata);
  (*node->attention)->Merge(node->layer, static_cast<float*>(dst->data), Stride(dst, 1), ith, nth);
}

void KeepRecentNode(ggml_tensor* /*dst*/, int ith, int nth, void* userdata) {
  const auto* node = static_cast<const AttentionNode*>(userdata);
  (*node->attention)->KeepRecent(node->layer, ith, nth);
}

int RopeMode(RopeStyle style) {
  switch (style) {
    case RopeStyle::kNorm:
      return GGML_ROPE_TYPE_NORMAL;
    case RopeStyle::kNeox:
      return GGML_ROPE_TYPE_NEOX;
  }
  CHECK(false);
}

}  // namespace

GraphBuilder::GraphBuilder(const Options& options)
    : options_(options),
      context_(options.context),
      tokens_(Input(options.num_rows, "tokens")),
      positions_(Input(options.num_rows, "positions")),
      output_rows_(Input(std::max(options.num_outputs, 1), "output_rows")) {
  CHECK_EQ(options.attention_nodes.size(), static_cast<size_t>(options.config->num_layers));
}

ggml_tensor* GraphBuilder::Input(int size, const char* name) {
  CHECK_GT(size, 0);
  ggml_tensor* input = ggml_new_tensor_1d(context_, GGML_TYPE_I32, size);
  ggml_set_name(input, name);
  ggml_set_input(input);
  // All inputs get memory, also those that a graph without outputs does not read.
  ggml_build_forward_expand(options_.graph, input);
  return input;
}

ggml_tensor* GraphBuilder::Required(std::string_view name) const {
  ggml_tensor* weight = options_.weights->Find(name);
  CHECK(weight != nullptr);
  return weight;
}

ggml_tensor* GraphBuilder::TokenEmbedding() {
  ggml_tensor* table = options_.weights->FindRows(kTokenEmbedding);
  CHECK(table != nullptr);
  return ggml_get_rows(context_, table, tokens_);
}

ggml_tensor* GraphBuilder::Add(ggml_tensor* a, ggml_tensor* b) { return ggml_add(context_, a, b); }

// The CPU backend fuses the two nodes when they are neighbours.
ggml_tensor* GraphBuilder::Norm(ggml_tensor* x, ggml_tensor* weight) {
  return ggml_mul(context_, ggml_rms_norm(context_, x, config().rms_eps), weight);
}

ggml_tensor* GraphBuilder::RmsNorm(ggml_tensor* x, int layer, std::string_view name) {
  return Norm(x, Required(LayerTensorName(layer, std::string(name) + ".weight")));
}

ggml_tensor* GraphBuilder::Linear(ggml_tensor* x, int layer, std::string_view name) {
  ggml_tensor* y = options_.products->Product(
      context_, Required(LayerTensorName(layer, std::string(name) + ".weight")), x);
  ggml_tensor* bias = Optional(LayerTensorName(layer, std::string(name) + ".bias"));
  return bias == nullptr ? y : ggml_add(context_, y, bias);
}

ggml_tensor* GraphBuilder::SplitHeads(ggml_tensor* x, int num_heads) {
  return ggml_reshape_3d(context_, x, config().head_dim, num_heads, options_.num_rows);
}

ggml_tensor* GraphBuilder::Rope(ggml_tensor* heads, ggml_tensor* factors) {
  return ggml_rope_ext(
      context_, heads, positions_, factors, config().rope_dim, RopeMode(options_.rope_style),
      /*n_ctx_orig=*/0, config().rope_theta, config().rope_scale, /*ext_factor=*/0.0f,
      /*attn_factor=*/1.0f, /*beta_fast=*/0.0f, /*beta_slow=*/0.0f);
}

ggml_tensor* GraphBuilder::Attention(int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) {
  AttentionNode* node = &options_.attention_nodes[static_cast<size_t>(layer)];
  std::array<ggml_tensor*, 2> kv = {k, v};
  ggml_tensor* stored = ggml_custom_4d(context_, GGML_TYPE_F32, 1, 1, 1, 1, kv.data(), 2,
                                       StoreKvNode, GGML_N_TASKS_MAX, node);
  if (layer == config().num_layers - 1 && options_.num_outputs == 0) {
    // Nothing will ask for what this layer attends to: the graph ends here.
    stored =
        ggml_custom_inplace(context_, stored, nullptr, 0, KeepRecentNode, GGML_N_TASKS_MAX, node);
  }
  ggml_build_forward_expand(options_.graph, stored);
  std::array<ggml_tensor*, 2> q_after_store = {q, stored};
  ggml_tensor* attended =
      ggml_custom_4d(context_, GGML_TYPE_F32, q->ne[0] * q->ne[1], options_.num_rows, 1, 1,
                     q_after_store.data(), 2, AttendNode, GGML_N_TASKS_MAX, node);
  return ggml_custom_inplace(context_, attended, nullptr, 0, MergeNode, GGML_N_TASKS_MAX, node);
}

ggml_tensor* GraphBuilder::AttentionResidual(ggml_tensor* x, ggml_tensor* attended, int layer) {
  if (layer == config().num_layers - 1) {
    attended = ggml_get_rows(context_, attended, output_rows_);
    x = ggml_get_rows(context_, x, output_rows_);
  }
  return Add(x, Linear(attended, layer, "attn_output"));
}

ggml_tensor* GraphBuilder::GatedFeedForward(ggml_tensor* x, int layer) {
  ggml_tensor* gate = Linear(x, layer, "ffn_gate");
  ggml_tensor* up = Linear(x, layer, "ffn_up");
  return Linear(ggml_swiglu_split(context_, gate, up), layer, "ffn_down");
}

ggml_tensor* GraphBuilder::Logits(ggml_tensor* x) {
  x = Norm(x, Required("output_norm.weight"));
  ggml_tensor* output = Optional(kOutput);
  ggml_tensor* logits = options_.products->Product(
      context_, output != nullptr ? output : Required(kTokenEmbedding), x);
  ggml_tensor* bias = Optional("output.bias");
  return bias == nullptr ? logits : ggml_add(context_, logits, bias);
}

}  // namespace turboquant
