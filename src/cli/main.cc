// turboquant VERB [flags]: one small file per verb; here only dispatch and errors of usage.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "cli/config_file.h"
#include "cli/console.h"
#include "cli/verbs.h"
#include "cli/version.h"

namespace turboquant::cli {
namespace {

int UsageError(std::string_view message) {
  return Report(Error{ErrorCode::kInvalidArgument, fmt::format("{} (turboquant help)", message)});
}

// "turboquant help", "turboquant help run", "turboquant --version": answered before the flags are
// parsed.
int Help(const CommandLine& line, std::string_view verb) {
  if (verb.empty()) {
    Print(line.program->help());
    return kExitDone;
  }
  for (const Verb& known : line.verbs) {
    if (known.command->get_name() == verb) {
      Print(known.command->help("turboquant"));
      return kExitDone;
    }
  }
  return UsageError(fmt::format("help: no verb '{}'", verb));
}

int Parse(const CommandLine& line, int argc, char** argv) {
  try {
    line.program->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    for (const Verb& verb : line.verbs) {
      if (verb.command->parsed())
        return Help(line, verb.command->get_name()) == kExitDone ? -1 : kExitBadInput;
    }
    Help(line, "");
    return -1;
  } catch (const CLI::ParseError& error) {
    const std::string verb = argc > 1 ? argv[1] : "";
    return UsageError(fmt::format("{}: {}", verb, error.what()));
  }
  return kExitDone;
}

int Main(int argc, char** argv) {
  InstallSignalHandlers();
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--version" || first == "version") {
    Print(VersionText());
    return kExitDone;
  }
  const CommandLine line = MakeCommandLine();
  if (first.empty() || first == "help") return Help(line, argc > 2 ? argv[2] : "");

  std::string log_level = "info";
  std::string
      config_path;  // read before parsing, declared so that the flag is known and has its help
  for (const Verb& verb : line.verbs) {
    verb.command->add_option("--log-level", log_level, "debug, info, warn, error or off")
        ->envname("TURBOQUANT_LOG_LEVEL");
    verb.command->add_option("--config", config_path, "TOML file with defaults for flags");
  }
  if (const std::string path = FindConfigPath(argc, argv); !path.empty()) {
    if (const Status status = ApplyConfigFile(path, line); !status) return Report(status.error());
  }
  if (const int status = Parse(line, argc, argv); status != kExitDone) return std::max(status, 0);
  if (const Status status = StartLogging(log_level); !status) return Report(status.error());
  for (const Verb& verb : line.verbs) {
    if (verb.command->parsed()) return verb.execute();
  }
  return UsageError("no verb given");
}

}  // namespace
}  // namespace turboquant::cli

int main(int argc, char** argv) { return turboquant::cli::Main(argc, argv); }
