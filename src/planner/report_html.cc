#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.h"
#include "planner/report.h"

namespace turboquant {
namespace {

constexpr std::string_view kStyle = R"(
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1.5rem}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd}
th:first-child,td:first-child{text-align:left}
.bar{display:flex;height:2.2rem;border:1px solid #888;background:#f3f3f3;overflow:hidden}
.bar div{min-width:1px;height:100%}
.key span{display:inline-block;margin-right:1.2rem}
.key i{display:inline-block;width:.8rem;height:.8rem;margin-right:.3rem}
.fits{background:#d6efd6}.tight{background:#f6d9d5}
.verdict{font-size:1.2rem;font-weight:600}code{background:#f0f0f0;padding:.1rem .3rem}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}.bar{background:#333}
td,th{border-color:#444}.fits{background:#1f4a24}.tight{background:#5b2420}code{background:#333}}
)";

constexpr std::array kColours = {"#4c78a8", "#f58518", "#e45756", "#b279a2", "#72b7b2",
                                 "#54a24b", "#eeca3b", "#9d755d", "#bab0ac", "#8cd17d"};

// Text from a file stays text.
std::string Escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// One bar as wide as the limit, or as the sum where that is more.
std::string MemoryBar(const Ledger& ledger) {
  const auto width =
      static_cast<double>(std::max({ledger.limit_bytes, ledger.total_bytes, uint64_t{1}}));
  std::string bar = "<div class=bar>", key = "<p class=key>";
  for (size_t i = 0; i < ledger.lines.size(); ++i) {
    const LedgerLine& line = ledger.lines[i];
    if (line.bytes == 0) continue;
    const char* colour = kColours[i % kColours.size()];
    bar += fmt::format("<div style=\"width:{:.3f}%;background:{}\" title=\"{}: {}\"></div>",
                       100 * static_cast<double>(line.bytes) / width, colour, Escape(line.name),
                       FormatBytes(line.bytes));
    key += fmt::format("<span><i style=\"background:{}\"></i>{} {}</span>", colour,
                       Escape(line.name), FormatBytes(line.bytes));
  }
  return bar + "</div>" + key +
         fmt::format("<span>total {} of {}</span></p>", FormatBytes(ledger.total_bytes),
                     FormatBytes(ledger.limit_bytes));
}

std::string LinesTable(const Ledger& ledger) {
  std::string html = "<table><tr><th>part<th>bytes<th><th>origin<th>note</tr>";
  for (const LedgerLine& line : ledger.lines) {
    html += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}<td>{}</tr>", Escape(line.name), line.bytes,
                        FormatBytes(line.bytes), Name(line.origin), Escape(line.note));
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
        layer.bits_per_value, Escape(layer.format));
  }
  return html + "</table>";
}

// Contexts down, sequences across.
std::string GridTable(const Answers& answers, const Answers::Capacity& capacity, size_t* cell) {
  std::string html = fmt::format("<h3>{}, {:.2f} bits per value</h3><table><tr><th>context",
                                 Escape(capacity.format), capacity.bits_per_value);
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
    html += fmt::format("<li><code>{}</code> ({})", Escape(change.flags),
                        FormatBytes(change.total_bytes));
  return html + "</ul>";
}

}  // namespace

std::string PlanHtml(const PlanReport& report) {
  const Ledger& ledger = report.ledger;
  const std::string title =
      Escape(fmt::format("{} on {}", ledger.model.name, Name(ledger.options.engine)));
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=en><meta charset=utf-8><title>{0}</title><style>{1}</style>\n"
      "<h1>{0}</h1><p>{2} of {3} tokens, cache {4}, {5:.8g} bytes per token</p>\n",
      title, kStyle, Count(ledger.max_num_seqs, "sequence"), ledger.max_model_len,
      Escape(ledger.profile->formats()), ledger.profile->BytesPerToken());
  html += VerdictHtml(report) + MemoryBar(ledger) + LinesTable(ledger);
  html += "\n<h2>Layers</h2><p>Bytes per token of one layer.</p>" + LayerTableHtml(ledger);
  html += "\n<h2>What fits</h2><p>Bytes of cache; green fits.</p>";
  size_t cell = 0;
  for (const Answers::Capacity& capacity : report.answers.capacities)
    html += GridTable(report.answers, capacity, &cell);
  html += RooflineHtml(report);
  for (const std::string& note : ledger.notes) html += "<p>Note: " + Escape(note) + "</p>";
  return html + "</html>\n";
}

}  // namespace turboquant
