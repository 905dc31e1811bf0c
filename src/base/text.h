// Sizes as people write and read them.
#ifndef TURBOQUANT_BASE_TEXT_H_
#define TURBOQUANT_BASE_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace turboquant {

// "512", "16k", "4Mi", "1.5G", "2GiB": k/K, M, G, T are powers of 1000, Ki, Mi, Gi, Ti powers of
// 1024; a trailing B is allowed. A fraction is rounded down to whole units. kInvalidArgument for
// anything else, negative or over 2^63 - 1.
Result<uint64_t> ParseSize(std::string_view text);

// "640 B", "1.50 KiB", "12.3 MiB", "123 GiB": three digits, powers of 1024.
std::string FormatBytes(uint64_t bytes);

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_TEXT_H_
