// The terminal side of every verb: log and progress on stderr, results on stdout, Ctrl-C, exit
// status.
#ifndef TURBOQUANT_CLI_CONSOLE_H_
#define TURBOQUANT_CLI_CONSOLE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace turboquant::cli {

// Exit status of the program.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;         // the run failed
inline constexpr int kExitBadInput = 2;       // bad usage or input
inline constexpr int kExitRefused = 3;        // a quality gate said no
inline constexpr int kExitInterrupted = 130;  // Ctrl-C
int ExitStatus(const Error& error);

// Prints "turboquant: message" as one line on stderr and returns the exit status for the error.
int Report(const Error& error);

// spdlog to stderr: level from `text` ("error", "warn", "info", "debug"); colours only on a
// terminal without NO_COLOR.
Status StartLogging(std::string_view level);

// First Ctrl-C (or SIGTERM) sets the flag, a second one kills the process. Broken pipes become
// write errors.
void InstallSignalHandlers();
const std::atomic<bool>& StopFlag();
// Clears the flag and arms the handlers again: chat goes on after an answer was stopped.
void ClearStop();

// Writes to stdout at once. False when stdout is gone (a closed pipe): the caller ends quietly.
bool Print(std::string_view text);

// True where progress may be drawn: stderr is a terminal.
bool StderrIsTerminal();

// One line that is redrawn in place with the time left; nothing when stderr is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::string label);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  void Update(int64_t done, int64_t total);
  void Clear();

 private:
  std::string label_;
  double start_seconds_;
  double last_draw_seconds_ = 0;
  bool drawn_ = false;
};

}  // namespace turboquant::cli

#endif  // TURBOQUANT_CLI_CONSOLE_H_
