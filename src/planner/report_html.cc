#include <algorithm>
#include <string_view>

#include "base/html.h"
#include "base/text.h"
#include "planner/report.h"

namespace turboquant {
namespace {

// One bar as wide as the limit, or as the sum where that is more.
std::string MemoryBar(const Ledger& ledger) {
  const auto width =
      static_cast<double>(std::max({ledger.limit_bytes, ledger.total_bytes, uint64_t{1}}));
  std::string bar = "<div class=bar>", key = "<p class=key>";
  for (size_t i = 0; i < ledger.lines.size(); ++i) {
    const LedgerLine& line = ledger.lines[i];
    if (line.bytes == 0) continue;
    const char* colour = kHtmlColours[i % kHtmlColours.size()];
    bar += fmt::format("<div style=\"width:{:.3f}%;background:{}\" title=\"{}: {}\"></div>",
                       100 * static_cast<double>(line.bytes) / width, colour, EscapeHtml(line.name),
                       FormatBytes(line.bytes));
    key += fmt::format("<span><i style=\"background:{}\"></i>{} {}</span>", colour,
                       EscapeHtml(line.name), FormatBytes(line.bytes));
  }
  return bar + "</div>" + key +
         fmt::format("<span>total {} of {}</span></p>", FormatBytes(ledger.total_bytes),
                     FormatBytes(ledger.limit_bytes));
}

std::string LinesTable(const Ledger& ledger) {
  std::string html = "<table><tr><th>part<th>bytes<th><th>origin<th>note</tr>";
  for (const LedgerLine& line : ledger.lines) {
    html +=
        fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}</tr>", EscapeHtml(line.name), line.bytes,
                    FormatBytes(line.bytes), Name(line.origin), EscapeHtml(line.note));
  }
  return html + fmt::format("<tr><th>total<th>{}<th>{}<th><th></tr></table>", ledger.total_bytes,
                            FormatBytes(ledger.total_bytes));
}

std::string LayerTableHtml(const Ledger& ledger) {
  std::string html =
      "<table><tr><th>layers<th>kind<th>KV heads<th>K<th>V<th>window<th>payload<th>scales"
      "<th>padding<th>bits per value<th>format</tr>";
  const std::vector<LayerLedger>& layers = ledger.profile->layers();
  for (const LayerRun& run : LayerRuns(layers)) {
    const LayerLedger& layer = layers[run.first];
    html += fmt::format(
        "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.6g}<td>{:.6g}<td>{:.6g}<td>{:.2f}<td>{}"
        "</tr>",
        run.Range(), Name(layer.shape.kind), layer.shape.num_kv_heads, layer.shape.k_dim,
        layer.shape.v_dim, layer.shape.window, layer.payload, layer.scales, layer.padding,
        layer.bits_per_value, EscapeHtml(layer.format));
  }
  return html + "</table>";
}

// Contexts down, sequences across.
std::string GridTable(const Answers& answers, const Answers::Capacity& capacity, size_t* cell) {
  std::string html = fmt::format("<h3>{}, {:.2f} bits per value</h3><table><tr><th>context",
                                 EscapeHtml(capacity.format), capacity.bits_per_value);
  for (const int num_seqs : answers.sequences)
    html += fmt::format("<th>{}", Count(num_seqs, "sequence"));
  html += "<th>most</tr>";
  for (size_t i = 0; i < answers.contexts.size(); ++i) {
    html += fmt::format("<tr><td>{}", answers.contexts[i]);
    for (size_t j = 0; j < answers.sequences.size(); ++j) {
      const GridCell& entry = answers.grid.at((*cell)++);
      html += fmt::format("<td class={}>{}", entry.fits ? "fits" : "tight",
                          FormatBytes(entry.cache_bytes));
    }
    html += fmt::format("<td>{}</tr>", capacity.max_sequences[i]);
  }
  return html + "</table>";
}

std::string RooflineHtml(const PlanReport& report) {
  if (!(report.bandwidth.bytes_per_second > 0)) return "";
  std::string html = fmt::format(
      "<h2>Decode at best</h2><p>By memory traffic at {:.1f} GB/s ({}).</p><table><tr><th>depth"
      "<th>weights read<th>cache read<th>tokens/s</tr>",
      report.bandwidth.bytes_per_second / 1e9, Name(report.bandwidth.origin));
  for (const RooflinePoint& point : Roofline(report.ledger, report.bandwidth.bytes_per_second)) {
    html += fmt::format("<tr><td>{}<td>{}<td>{}<td>{:.1f}</tr>", point.depth,
                        FormatBytes(point.weight_bytes), FormatBytes(point.cache_bytes),
                        point.tokens_per_second);
  }
  return html + "</table>";
}

std::string VerdictHtml(const PlanReport& report) {
  const Ledger& ledger = report.ledger;
  std::string html = fmt::format(
      "<p class=verdict>{}: {} of cache, {} left for it</p><p>Longest context for {}: {} tokens. "
      "Most sequences of {} tokens: {}.</p>",
      ledger.fits() ? "Fits" : "Does not fit", FormatBytes(ledger.cache.total()),
      FormatBytes(ledger.cache_limit_bytes), Count(ledger.max_num_seqs, "sequence"),
      report.answers.max_context, ledger.max_model_len, report.answers.max_sequences);
  if (report.answers.changes.empty()) return html;
  html += "<p>Would fit, cheapest first:</p><ul>";
  for (const Change& change : report.answers.changes)
    html += fmt::format("<li><code>{}</code> ({})", EscapeHtml(change.flags),
                        FormatBytes(change.total_bytes));
  return html + "</ul>";
}

}  // namespace

std::string PlanHtml(const PlanReport& report) {
  const Ledger& ledger = report.ledger;
  const std::string title = fmt::format("{} on {}", ledger.model.name, Name(ledger.options.engine));
  std::string html =
      fmt::format("<h1>{}</h1><p>{} of {} tokens, cache {}, {:.8g} bytes per token</p>\n",
                  EscapeHtml(title), Count(ledger.max_num_seqs, "sequence"), ledger.max_model_len,
                  EscapeHtml(ledger.profile->formats()), ledger.profile->BytesPerToken());
  html += VerdictHtml(report) + MemoryBar(ledger) + LinesTable(ledger);
  html += "\n<h2>Layers</h2><p>Bytes per token of one layer.</p>" + LayerTableHtml(ledger);
  html += "\n<h2>What fits</h2><p>Bytes of cache; green fits.</p>";
  size_t cell = 0;
  for (const Answers::Capacity& capacity : report.answers.capacities)
    html += GridTable(report.answers, capacity, &cell);
  html += RooflineHtml(report);
  for (const std::string& note : ledger.notes) html += "<p>Note: " + EscapeHtml(note) + "</p>";
  return HtmlPage(title, html);
}

}  // namespace turboquant
