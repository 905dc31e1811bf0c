// Errors the caller or the outside world can cause. A function that can fail this way returns
// Result<T>; broken invariants use CHECK (base/check.h), capacity that runs out is a normal return
// value.
#ifndef TURBOQUANT_BASE_ERROR_H_
#define TURBOQUANT_BASE_ERROR_H_

#include <fmt/format.h>

#include <expected>
#include <string>
#include <utility>

namespace turboquant {

enum class ErrorCode {
  kInvalidArgument,  // a flag, request or parameter is wrong
  kNotFound,         // a file or name does not exist
  kCorrupt,          // input from outside is malformed
  kUnsupported,      // well formed, but not something this build can do
  kOutOfMemory,      // does not fit in the memory given
  kIo,               // the operating system refused a read or write
  kInterrupted,      // the user asked to stop
};

// What was wrong, where, and what would work; one line.
struct Error {
  ErrorCode code;
  std::string message;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

// return Fail(ErrorCode::kCorrupt, "{}: tensor '{}' ends at byte {} of {}", path, name, end, size);
template <typename... Args>
[[nodiscard]] std::unexpected<Error> Fail(ErrorCode code, fmt::format_string<Args...> format,
                                          Args&&... args) {
  return std::unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace turboquant

#define TQ_CONCAT_INNER(a, b) a##b
#define TQ_CONCAT(a, b) TQ_CONCAT_INNER(a, b)

// Returns the error of a Status or Result expression from the enclosing function.
#define TQ_RETURN_IF_ERROR(expr)                            \
  do {                                                      \
    if (auto tq_status = (expr); !tq_status) {              \
      return std::unexpected(std::move(tq_status).error()); \
    }                                                       \
  } while (false)

// TQ_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
#define TQ_ASSIGN_OR_RETURN(lhs, expr) \
  TQ_ASSIGN_OR_RETURN_INNER(TQ_CONCAT(tq_result_, __LINE__), lhs, expr)
#define TQ_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr)           \
  auto tmp = (expr);                                        \
  if (!tmp) return std::unexpected(std::move(tmp).error()); \
  lhs = std::move(*tmp)

#endif  // TURBOQUANT_BASE_ERROR_H_
