// What this build is: version, compiler, CPU features found, kernels compiled in.
#ifndef TURBOQUANT_CLI_VERSION_H_
#define TURBOQUANT_CLI_VERSION_H_

#include <string>

namespace turboquant::cli {

std::string VersionText();

}  // namespace turboquant::cli

#endif  // TURBOQUANT_CLI_VERSION_H_
