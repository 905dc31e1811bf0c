// Defaults of flags from a TOML file: keys are flag names without dashes, at the top for every verb
// that has them, or in a table named after a verb. A flag or its environment variable wins over the
// file.
#ifndef TURBOQUANT_CLI_CONFIG_FILE_H_
#define TURBOQUANT_CLI_CONFIG_FILE_H_

#include <string>

#include "base/error.h"
#include "cli/verbs.h"

namespace turboquant::cli {

// Path given by --config in argv or by TURBOQUANT_CONFIG; empty if neither is.
std::string FindConfigPath(int argc, const char* const* argv);

// Sets the defaults of all verbs. kInvalidArgument: unreadable TOML, or a key that no verb knows.
Status ApplyConfigFile(const std::string& path, const CommandLine& line);

}  // namespace turboquant::cli

#endif  // TURBOQUANT_CLI_CONFIG_FILE_H_
