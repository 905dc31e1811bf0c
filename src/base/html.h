// Pages that need nothing from elsewhere.
#ifndef TURBOQUANT_BASE_HTML_H_
#define TURBOQUANT_BASE_HTML_H_

#include <string>
#include <string_view>

namespace turboquant {

// Text from a file stays text.
std::string EscapeHtml(std::string_view text);

// A whole page in our style, light or dark as the reader's. title: plain text; body: HTML.
std::string HtmlPage(std::string_view title, std::string_view body);

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_HTML_H_
