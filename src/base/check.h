// Broken invariants of our own code: print what was expected and both values, then abort. Never for
// input from outside (base/error.h). CHECK* are in every build, DCHECK* in debug builds only (their
// arguments are not evaluated otherwise).
#ifndef TURBOQUANT_BASE_CHECK_H_
#define TURBOQUANT_BASE_CHECK_H_

#include <fmt/format.h>

#include <string>
#include <type_traits>

namespace turboquant::internal {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
[[noreturn]] void CheckOpFailed(const char* file, int line, const char* condition,
                                const std::string& left, const std::string& right);

template <typename T>
std::string CheckValueString(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<long long>(value));
  } else if constexpr (std::is_null_pointer_v<T>) {
    return "nullptr";
  } else if constexpr (std::is_pointer_v<T> && !std::is_same_v<T, const char*> &&
                       !std::is_same_v<T, char*>) {
    return fmt::format("{}", static_cast<const void*>(value));
  } else if constexpr (fmt::is_formattable<T>::value) {
    return fmt::format("{}", value);
  } else {
    return "(not printable)";
  }
}

// Both operands are evaluated once. A mix of signs compares as the built-in operator does.
#define TQ_DEFINE_CHECK_OP(name, op)                                                     \
  template <typename A, typename B>                                                      \
  void name(const A& a, const B& b, const char* file, int line, const char* condition) { \
    if (!(a op b)) [[unlikely]] {                                                        \
      CheckOpFailed(file, line, condition, CheckValueString(a), CheckValueString(b));    \
    }                                                                                    \
  }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
TQ_DEFINE_CHECK_OP(CheckEq, ==)
TQ_DEFINE_CHECK_OP(CheckNe, !=)
TQ_DEFINE_CHECK_OP(CheckLt, <)
TQ_DEFINE_CHECK_OP(CheckLe, <=)
TQ_DEFINE_CHECK_OP(CheckGt, >)
TQ_DEFINE_CHECK_OP(CheckGe, >=)
#pragma GCC diagnostic pop
#undef TQ_DEFINE_CHECK_OP

}  // namespace turboquant::internal

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) [[unlikely]] {                                       \
      ::turboquant::internal::CheckFailed(__FILE__, __LINE__, #condition); \
    }                                                                      \
  } while (false)
#define CHECK_EQ(a, b) ::turboquant::internal::CheckEq((a), (b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_NE(a, b) ::turboquant::internal::CheckNe((a), (b), __FILE__, __LINE__, #a " != " #b)
#define CHECK_LT(a, b) ::turboquant::internal::CheckLt((a), (b), __FILE__, __LINE__, #a " < " #b)
#define CHECK_LE(a, b) ::turboquant::internal::CheckLe((a), (b), __FILE__, __LINE__, #a " <= " #b)
#define CHECK_GT(a, b) ::turboquant::internal::CheckGt((a), (b), __FILE__, __LINE__, #a " > " #b)
#define CHECK_GE(a, b) ::turboquant::internal::CheckGe((a), (b), __FILE__, __LINE__, #a " >= " #b)

#ifdef NDEBUG
#define TQ_DCHECK_IMPL(check) \
  do {                        \
    if (false) {              \
      check;                  \
    }                         \
  } while (false)
#else
#define TQ_DCHECK_IMPL(check) \
  do {                        \
    check;                    \
  } while (false)
#endif
#define DCHECK(condition) TQ_DCHECK_IMPL(CHECK(condition))
#define DCHECK_EQ(a, b) TQ_DCHECK_IMPL(CHECK_EQ(a, b))
#define DCHECK_NE(a, b) TQ_DCHECK_IMPL(CHECK_NE(a, b))
#define DCHECK_LT(a, b) TQ_DCHECK_IMPL(CHECK_LT(a, b))
#define DCHECK_LE(a, b) TQ_DCHECK_IMPL(CHECK_LE(a, b))
#define DCHECK_GT(a, b) TQ_DCHECK_IMPL(CHECK_GT(a, b))
#define DCHECK_GE(a, b) TQ_DCHECK_IMPL(CHECK_GE(a, b))

#endif  // TURBOQUANT_BASE_CHECK_H_
