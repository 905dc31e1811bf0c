// Who may call. A server on a loopback address is there for this machine's programs, not for any
// web page that its browser shows: the Host and Origin that a page cannot choose tell them apart
// (DNS rebinding, cross-site calls).
#ifndef TURBOQUANT_SERVER_ACCESS_H_
#define TURBOQUANT_SERVER_ACCESS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_message.h"

namespace turboquant::server {

struct AccessRules {
  bool loopback_only = true;              // the address listened on is a loopback one
  std::string api_key = {};               // empty = none is needed
  std::vector<std::string> origins = {};  // allowed beside loopback ones; "*" = every
};

// Empty: allowed. /health needs no key.
std::optional<ApiError> CheckAccess(const AccessRules& rules, const HttpCall& call);
// Whether pages of this origin may read answers.
bool OriginAllowed(const AccessRules& rules, std::string_view origin);

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_ACCESS_H_
