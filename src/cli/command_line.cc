#include <cctype>
#include <string>

#include "cli/verbs.h"

namespace turboquant::cli {

namespace {

// "--kv-cache-dtype" -> "TURBOQUANT_KV_CACHE_DTYPE"
std::string EnvironmentName(const std::string& long_name) {
  std::string name = "TURBOQUANT_";
  for (const char c : long_name)
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

void AddEnvironmentTwins(CLI::App* verb) {
  for (CLI::Option* option : verb->get_options()) {
    if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
    option->envname(EnvironmentName(option->get_lnames().front()));
  }
}

}  // namespace

CommandLine MakeCommandLine() {
  CommandLine line{
      std::make_unique<CLI::App>(
          "TurboQuant: language models on a quantized, paged, measured KV cache", "turboquant"),
      {}};
  CLI::App* program = line.program.get();
  program->require_subcommand(0, 1);
  program->set_help_flag("-h,--help", "print this help");
  line.verbs = {AddRun(program),     AddChat(program),    AddServe(program),
                AddInspect(program), AddEval(program),    AddBench(program),
                AddPlan(program),    AddDoctor(program),  AddCalibrate(program),
                AddTune(program),    AddConvert(program), AddCompletion(program)};
  for (const Verb& verb : line.verbs) {
    verb.command->set_help_flag("-h,--help", "print this help");
    AddEnvironmentTwins(verb.command);
  }
  return line;
}

}  // namespace turboquant::cli
