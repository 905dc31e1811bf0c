#include "server/access.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable_text.h"

namespace turboquant::server {
namespace {

// "localhost:8000" -> "localhost", "[::1]:8000" -> "[::1]".
std::string_view WithoutPort(std::string_view host) {
  const size_t bracket = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon == std::string_view::npos) return host;
  if (bracket != std::string_view::npos && colon < bracket) return host;
  return host.substr(0, colon);
}

bool IsLoopbackName(std::string_view host) {
  const std::string_view name = WithoutPort(host);
  return name == "localhost" || name == "127.0.0.1" || name == "[::1]";
}

// Takes as long whatever is wrong.
bool SameSecret(std::string_view given, std::string_view wanted) {
  unsigned difference = given.size() != wanted.size();
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned char>(wanted[i % wanted.size()]);
  }
  return difference == 0;
}

}  // namespace

bool OriginAllowed(const AccessRules& rules, std::string_view origin) {
  for (const std::string& allowed : rules.origins) {
    if (allowed == "*" || allowed == origin) return true;
  }
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && IsLoopbackName(origin.substr(scheme + 3));
}

std::optional<ApiError> CheckAccess(const AccessRules& rules, const HttpCall& call) {
  if (rules.loopback_only && !IsLoopbackName(call.host)) {
    return ApiError{.status = 403,
                    .message = fmt::format("Host '{}' is not this machine; start with --host to"
                                           " serve others",
                                           PrintableText(call.host)),
                    .code = "host_not_allowed"};
  }
  if (!call.origin.empty() && !OriginAllowed(rules, call.origin)) {
    return ApiError{.status = 403,
                    .message = fmt::format("pages of '{}' may not call; start with"
                                           " --allowed-origins to let them",
                                           PrintableText(call.origin)),
                    .code = "origin_not_allowed"};
  }
  if (rules.api_key.empty() || call.path == "/health") return std::nullopt;
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = call.authorization;
  if (given.starts_with(kBearer) && SameSecret(given.substr(kBearer.size()), rules.api_key)) {
    return std::nullopt;
  }
  return ApiError{.status = 401,
                  .message = "a valid key is needed: Authorization: Bearer KEY",
                  .code = "invalid_api_key",
                  .type = "authentication_error"};
}

}  // namespace turboquant::server
