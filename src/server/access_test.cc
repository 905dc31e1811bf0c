#include "server/access.h"

#include <gtest/gtest.h>

namespace turboquant::server {
namespace {

// HTTP status; 200 = allowed.
int StatusOf(const AccessRules& rules, const HttpCall& call) {
  const auto refused = CheckAccess(rules, call);
  return refused ? refused->status : 200;
}

TEST(Access, LoopbackServersWantALoopbackHost) {
  const AccessRules rules;
  for (const char* host :
       {"localhost", "localhost:8000", "127.0.0.1:8000", "[::1]", "[::1]:8000"}) {
    EXPECT_EQ(StatusOf(rules, {.host = host}), 200) << host;
  }
  for (const char* host : {"", "evil.example", "localhost.evil.example:8000", "127.0.0.1.evil",
                           "evil:127.0.0.1", "[::2]:8000"}) {
    EXPECT_EQ(StatusOf(rules, {.host = host}), 403) << host;
  }
  EXPECT_EQ(StatusOf({.loopback_only = false}, {.host = "models.example"}), 200);
}

TEST(Access, OnlyAllowedPagesMayCall) {
  const AccessRules rules{.origins = {"https://chat.example"}};
  for (const char* origin : {"", "https://chat.example", "http://localhost:3000",
                             "http://127.0.0.1", "http://[::1]:3000"}) {
    EXPECT_EQ(StatusOf(rules, {.host = "localhost", .origin = origin}), 200) << origin;
  }
  for (const char* origin :
       {"https://evil.example", "null", "https://chat.example.evil", "http://localhost.evil"}) {
    EXPECT_EQ(StatusOf(rules, {.host = "localhost", .origin = origin}), 403) << origin;
  }
  EXPECT_EQ(StatusOf({.origins = {"*"}}, {.host = "localhost", .origin = "https://any"}), 200);
}

TEST(Access, TheKeyGuardsEverythingButHealth) {
  const AccessRules rules{.api_key = "secret"};
  const auto status = [&rules](const char* path, const char* authorization) {
    return StatusOf(rules, {.path = path, .host = "localhost", .authorization = authorization});
  };
  EXPECT_EQ(status("/v1/models", "Bearer secret"), 200);
  for (const char* wrong : {"", "secret", "Bearer ", "Bearer secre", "Bearer secrets",
                            "Bearer secretsecret", "Basic secret", "Bearer Secret"}) {
    EXPECT_EQ(status("/v1/models", wrong), 401) << wrong;
    EXPECT_EQ(status("/metrics", wrong), 401) << wrong;
  }
  EXPECT_EQ(status("/health", ""), 200);
}

}  // namespace
}  // namespace turboquant::server
