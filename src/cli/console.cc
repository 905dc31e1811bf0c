#include "cli/console.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

namespace turboquant::cli {
namespace {

std::atomic<bool> stop_flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set from a signal handler");

extern "C" void OnStopSignal(int signal_number) {
  stop_flag.store(true, std::memory_order_relaxed);
  std::signal(signal_number, SIG_DFL);
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

int ExitStatus(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
      return kExitBadInput;
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kIo:
      return kExitFailed;
    case ErrorCode::kInterrupted:
      return kExitInterrupted;
  }
  return kExitFailed;
}

int Report(const Error& error) {
  std::string line = error.message;
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  fmt::print(stderr, "turboquant: {}\n", line);
  return ExitStatus(error);
}

Status StartLogging(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") {
    return Fail(ErrorCode::kInvalidArgument,
                "--log-level: unknown level '{}'; known: debug, info, warn, error, off", level);
  }
  const char* no_color = std::getenv("NO_COLOR");
  const auto mode = no_color != nullptr && *no_color != '\0' ? spdlog::color_mode::never
                                                             : spdlog::color_mode::automatic;
  auto logger = spdlog::stderr_color_mt("turboquant", mode);
  logger->set_pattern("%^%l%$ %v");
  logger->set_level(parsed);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

void InstallSignalHandlers() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;  // without SA_RESTART: a read that waits for the user ends
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void ClearStop() {
  stop_flag.store(false, std::memory_order_relaxed);
  InstallSignalHandlers();
}

const std::atomic<bool>& StopFlag() { return stop_flag; }

bool Print(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool StderrIsTerminal() { return ::isatty(STDERR_FILENO) == 1; }

ProgressLine::ProgressLine(std::string label) : label_(std::move(label)), start_seconds_(Now()) {}
ProgressLine::~ProgressLine() { Clear(); }

void ProgressLine::Update(int64_t done, int64_t total) {
  constexpr double kRedrawSeconds = 0.1;
  const double now = Now();
  if (!StderrIsTerminal() || now - last_draw_seconds_ < kRedrawSeconds) return;
  last_draw_seconds_ = now;
  drawn_ = true;
  std::string left;
  if (done > 0 && now - start_seconds_ > 1) {
    left =
        fmt::format(", {:.0f} s left", (now - start_seconds_) * static_cast<double>(total - done) /
                                           static_cast<double>(done));
  }
  fmt::print(stderr, "\r\033[K{}: {} of {}{}", label_, done, total, left);
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace turboquant::cli
