#include <nlohmann/json.hpp>

#include "planner/report.h"

namespace turboquant {
namespace {

using Json = nlohmann::ordered_json;

Json LayersJson(const Ledger& ledger) {
  Json layers = Json::array();
  size_t index = 0;
  for (const LayerLedger& layer : ledger.profile->layers()) {
    layers.push_back({{"layer", index++},
                      {"kind", Name(layer.shape.kind)},
                      {"num_kv_heads", layer.shape.num_kv_heads},
                      {"k_dim", layer.shape.k_dim},
                      {"v_dim", layer.shape.v_dim},
                      {"window", layer.shape.window},
                      {"format", layer.format},
                      {"payload", layer.payload},
                      {"scales", layer.scales},
                      {"padding", layer.padding},
                      {"bytes_per_token", layer.BytesPerToken()},
                      {"bits_per_value", layer.bits_per_value},
                      {"state_bytes", layer.state_bytes}});
  }
  return layers;
}

Json LinesJson(const Ledger& ledger) {
  Json lines = Json::array();
  for (const LedgerLine& line : ledger.lines) {
    lines.push_back({{"name", line.name},
                     {"bytes", line.bytes},
                     {"origin", Name(line.origin)},
                     {"note", line.note}});
  }
  return lines;
}

Json KvJson(const Ledger& ledger) {
  const CacheBytes one = ledger.profile->Bytes(ledger.max_model_len, 1);
  return {{"formats", ledger.profile->formats()},
          {"block_size", ledger.profile->block_size()},
          {"bytes_per_token", ledger.profile->BytesPerToken()},
          {"bits_per_value", ledger.profile->BitsPerValue()},
          {"payload", ledger.cache.payload},
          {"scales", ledger.cache.scales},
          {"padding", ledger.cache.padding},
          {"tail", ledger.cache.sequences},
          {"state", ledger.cache.state},
          {"bytes", ledger.cache.total()},
          {"bytes_per_sequence", one.total()},
          {"pool_bytes", ledger.pool_bytes},
          {"limit_bytes", ledger.cache_limit_bytes}};
}

Json ChangesJson(const Answers& answers) {
  Json changes = Json::array();
  for (const Change& change : answers.changes) {
    changes.push_back({{"flags", change.flags},
                       {"total_bytes", change.total_bytes},
                       {"limit_bytes", change.limit_bytes}});
  }
  return changes;
}

Json GridJson(const Answers& answers) {
  Json grid = Json::array();
  for (const GridCell& cell : answers.grid) {
    grid.push_back({{"format", cell.format},
                    {"context", cell.context},
                    {"sequences", cell.num_seqs},
                    {"cache_bytes", cell.cache_bytes},
                    {"fits", cell.fits}});
  }
  return grid;
}

Json CapacityJson(const Answers& answers) {
  Json rows = Json::array();
  for (const Answers::Capacity& row : answers.capacities) {
    for (size_t i = 0; i < row.max_sequences.size(); ++i) {
      rows.push_back({{"format", row.format},
                      {"context", answers.contexts[i]},
                      {"max_sequences", row.max_sequences[i]}});
    }
  }
  return rows;
}

Json RooflineJson(const PlanReport& report) {
  if (!(report.bandwidth.bytes_per_second > 0)) return nullptr;
  Json points = Json::array();
  for (const RooflinePoint& point : Roofline(report.ledger, report.bandwidth.bytes_per_second)) {
    points.push_back({{"depth", point.depth},
                      {"weight_bytes", point.weight_bytes},
                      {"cache_bytes", point.cache_bytes},
                      {"tokens_per_second", point.tokens_per_second}});
  }
  return {{"bytes_per_second", report.bandwidth.bytes_per_second},
          {"origin", Name(report.bandwidth.origin)},
          {"points", points}};
}

Json ModelJson(const ModelShape& model) {
  return {{"file", model.path},
          {"name", model.name},
          {"architecture", model.architecture},
          {"num_parameters", model.num_parameters},
          {"active_parameters", model.active_parameters},
          {"max_context", model.max_context},
          {"runs_here", model.cannot_run.empty() && model.is_gguf}};
}

}  // namespace

std::string PlanJson(const PlanReport& report) {
  const Ledger& ledger = report.ledger;
  const Answers& answers = report.answers;
  const Json json = {{"schema", "turboquant.plan/1"},
                     {"engine", Name(ledger.options.engine)},
                     {"tensor_parallel_size", ledger.options.tensor_parallel_size},
                     {"model", ModelJson(ledger.model)},
                     {"max_model_len", ledger.max_model_len},
                     {"max_num_seqs", ledger.max_num_seqs},
                     {"layers", LayersJson(ledger)},
                     {"kv", KvJson(ledger)},
                     {"lines", LinesJson(ledger)},
                     {"weights_bytes", ledger.weights_bytes()},
                     {"activations_bytes", ledger.buffers.total()},
                     {"runtime_bytes", ledger.runtime_bytes},
                     {"total_bytes", ledger.total_bytes},
                     {"limit_bytes", ledger.limit_bytes},
                     {"fits", ledger.fits()},
                     {"max_context", answers.max_context},
                     {"max_sequences", answers.max_sequences},
                     {"changes", ChangesJson(answers)},
                     {"capacity", CapacityJson(answers)},
                     {"grid", GridJson(answers)},
                     {"roofline", RooflineJson(report)},
                     {"notes", ledger.notes}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace turboquant
