// Text from a file in names and messages.
#ifndef TURBOQUANT_BASE_PRINTABLE_TEXT_H_
#define TURBOQUANT_BASE_PRINTABLE_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace turboquant {

// Valid UTF-8 (no overlong forms, no surrogates) without control bytes: survives zero-terminated
// strings and a one-line message.
bool IsPrintableUtf8(std::string_view text);

// Made fit for a one-line message: control bytes and bad UTF-8 escaped, cut at `max_bytes` with
// "...".
std::string PrintableText(std::string_view text, size_t max_bytes = 64);

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_PRINTABLE_TEXT_H_
