// Pages that need nothing from elsewhere.
#ifndef TURBOQUANT_BASE_HTML_H_
#define TURBOQUANT_BASE_HTML_H_

#include <array>
#include <string>
#include <string_view>

namespace turboquant {

// Colours that can be told apart, for bars and lines.
inline constexpr std::array kHtmlColours = {"#4c78a8", "#f58518", "#e45756", "#b279a2", "#72b7b2",
                                            "#54a24b", "#eeca3b", "#9d755d", "#bab0ac", "#8cd17d"};

// Text from a file stays text.
std::string EscapeHtml(std::string_view text);

// A whole page in our style, light or dark as the reader's. title: plain text; body: HTML.
std::string HtmlPage(std::string_view title, std::string_view body);

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_HTML_H_
