// One function per verb: adds its subcommand and flags to the program and returns what runs it.
#ifndef TURBOQUANT_CLI_VERBS_H_
#define TURBOQUANT_CLI_VERBS_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <vector>

namespace turboquant::cli {

struct Verb {
  CLI::App* command;
  std::function<int()> execute;  // returns the exit status; flags have been parsed
};

Verb AddRun(CLI::App* program);
Verb AddChat(CLI::App* program);
Verb AddServe(CLI::App* program);
Verb AddInspect(CLI::App* program);
Verb AddEval(CLI::App* program);
Verb AddBench(CLI::App* program);
Verb AddPlan(CLI::App* program);
Verb AddDoctor(CLI::App* program);
Verb AddCalibrate(CLI::App* program);
Verb AddTune(CLI::App* program);
Verb AddConvert(CLI::App* program);
Verb AddCompletion(CLI::App* program);

// The whole command line. Every long flag of a verb gets its environment twin TURBOQUANT_<FLAG>.
struct CommandLine {
  std::unique_ptr<CLI::App> program;
  std::vector<Verb> verbs;
};
CommandLine MakeCommandLine();

}  // namespace turboquant::cli

#endif  // TURBOQUANT_CLI_VERBS_H_
