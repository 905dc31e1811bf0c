#include "planner/report.h"

#include "base/text.h"

namespace turboquant {
namespace {

std::string Header(const Ledger& ledger) {
  const ModelShape& model = ledger.model;
  const std::string context =
      model.max_context > 0 ? fmt::format("{} tokens", model.max_context) : "not said";
  return fmt::format(
      "model     {} ({}), {}, context {}\n"
      "engine    {}{}, cache {}, blocks of {} tokens\n"
      "asked     {} of {} tokens\n"
      "token     {:.8g} bytes in all layers, {:.2f} bits per value\n\n",
      model.name, model.architecture, Count(static_cast<int64_t>(model.layers.size()), "layer"),
      context, Name(ledger.options.engine),
      ledger.options.tensor_parallel_size > 1
          ? fmt::format(", one of {} ranks", ledger.options.tensor_parallel_size)
          : "",
      ledger.profile->formats(), ledger.profile->block_size(),
      Count(ledger.max_num_seqs, "sequence"), ledger.max_model_len, ledger.profile->BytesPerToken(),
      ledger.profile->BitsPerValue());
}

std::string LayerTable(const Ledger& ledger) {
  std::string text =
      fmt::format("{:<9}{:<10}{:>6}{:>6}{:>6}{:>8}{:>10}{:>8}{:>9}{:>7}  {}\n", "layers", "kind",
                  "heads", "K", "V", "window", "payload", "scales", "padding", "bits", "format");
  const std::vector<LayerLedger>& layers = ledger.profile->layers();
  for (const LayerRun& run : LayerRuns(layers)) {
    const LayerLedger& layer = layers[run.first];
    const std::string window = layer.shape.window > 0 ? std::to_string(layer.shape.window) : "-";
    const std::string format = layer.shape.kind == LayerKind::kRecurrent
                                   ? fmt::format("{} per sequence", FormatBytes(layer.state_bytes))
                                   : layer.format;
    text += fmt::format("{:<9}{:<10}{:>6}{:>6}{:>6}{:>8}{:>10.6g}{:>8.6g}{:>9.6g}{:>7.2f}  {}\n",
                        run.Range(), Name(layer.shape.kind), layer.shape.num_kv_heads,
                        layer.shape.k_dim, layer.shape.v_dim, window, layer.payload, layer.scales,
                        layer.padding, layer.bits_per_value, format);
  }
  return text + "(bytes per token of one layer)\n\n";
}

std::string Verdict(const PlanReport& report) {
  const Ledger& ledger = report.ledger;
  const uint64_t need = ledger.cache.total(), have = ledger.cache_limit_bytes;
  std::string text;
  if (ledger.fits()) {
    text = fmt::format("fits: {} of cache, {} to spare\n", FormatBytes(need),
                       FormatBytes(have - need));
  } else {
    text = fmt::format("does not fit: {} of cache where {} are left, {} too much\n",
                       FormatBytes(need), FormatBytes(have), FormatBytes(need - have));
    if (ledger.plan) {
      text += fmt::format(
          "the engine would start with a pool of {} tokens and preempt sequences when it is full\n",
          ledger.plan->PoolTokens());
    }
  }
  if (ledger.refusal) text += "the engine refuses to start: " + ledger.refusal->message + "\n";
  text += fmt::format("longest context for {}: {} tokens\nmost sequences of {} tokens: {}\n",
                      Count(ledger.max_num_seqs, "sequence"), report.answers.max_context,
                      ledger.max_model_len, report.answers.max_sequences);
  if (report.answers.changes.empty()) return text;
  text += "would fit, cheapest first:\n";
  for (const Change& change : report.answers.changes) {
    text += fmt::format("  {:<44} {} of {}\n", change.flags, FormatBytes(change.total_bytes),
                        FormatBytes(change.limit_bytes));
  }
  return text;
}

std::string CapacityTable(const Answers& answers) {
  if (answers.capacities.empty()) return "";
  std::string text = fmt::format("\n{:<22}{:>6}", "most sequences at", "bits");
  for (const int context : answers.contexts) text += fmt::format("{:>9}", context);
  text += "\n";
  for (const Answers::Capacity& row : answers.capacities) {
    text += fmt::format("{:<22}{:>6.2f}", row.format, row.bits_per_value);
    for (const int64_t count : row.max_sequences) text += fmt::format("{:>9}", count);
    text += "\n";
  }
  return text;
}

std::string RooflineTable(const PlanReport& report) {
  if (!(report.bandwidth.bytes_per_second > 0)) return "";
  std::string text = fmt::format(
      "\ndecode at best, by memory traffic at {:.1f} GB/s ({}):\n{:>9}{:>14}{:>14}{:>14}\n",
      report.bandwidth.bytes_per_second / 1e9, Name(report.bandwidth.origin), "depth",
      "weights read", "cache read", "tokens/s");
  for (const RooflinePoint& point : Roofline(report.ledger, report.bandwidth.bytes_per_second)) {
    text +=
        fmt::format("{:>9}{:>14}{:>14}{:>14.1f}\n", point.depth, FormatBytes(point.weight_bytes),
                    FormatBytes(point.cache_bytes), point.tokens_per_second);
  }
  return text;
}

}  // namespace

std::string Count(int64_t number, const std::string& noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string LayerRun::Range() const {
  return end - first == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, end - 1);
}

std::vector<LayerRun> LayerRuns(const std::vector<LayerLedger>& layers) {
  std::vector<LayerRun> runs;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool same =
        i > 0 && layers[i].shape == layers[i - 1].shape && layers[i].format == layers[i - 1].format;
    if (same) {
      ++runs.back().end;
    } else {
      runs.push_back({i, i + 1});
    }
  }
  return runs;
}

std::vector<std::string> LedgerTable(const Ledger& ledger) {
  std::vector<std::string> lines;
  for (const LedgerLine& line : ledger.lines) {
    lines.push_back(fmt::format("{:<20}{:>10}  {:<9}{}", line.name, FormatBytes(line.bytes),
                                Name(line.origin), line.note));
  }
  lines.push_back(fmt::format("{:<20}{:>10}  of {}", "total", FormatBytes(ledger.total_bytes),
                              FormatBytes(ledger.limit_bytes)));
  return lines;
}

std::string PlanText(const PlanReport& report) {
  std::string text = Header(report.ledger) + LayerTable(report.ledger);
  for (const std::string& line : LedgerTable(report.ledger)) text += line + "\n";
  text += "\n" + Verdict(report) + CapacityTable(report.answers) + RooflineTable(report);
  if (!report.ledger.notes.empty() || !report.ledger.model.cannot_run.empty()) text += "\n";
  for (const std::string& note : report.ledger.notes) text += "note: " + note + "\n";
  const bool ours = report.ledger.options.engine == EngineKind::kTurboquant;
  if (ours && !report.ledger.model.cannot_run.empty()) {
    text += fmt::format("note: {}: these are the sizes that its cache would have\n",
                        report.ledger.model.cannot_run);
  }
  return text;
}

}  // namespace turboquant
