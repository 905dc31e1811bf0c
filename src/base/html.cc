#include "base/html.h"

#include <fmt/format.h>

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

}  // namespace

std::string EscapeHtml(std::string_view text) {
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

std::string HtmlPage(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport "
      "content=\"width=device-width\"><title>{}</title><style>{}</style>{}</html>\n",
      EscapeHtml(title), kStyle, body);
}

}  // namespace turboquant
