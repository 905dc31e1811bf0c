// turboquant completion: shell completions, generated from the same flags that are parsed.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/verbs.h"

namespace turboquant::cli {
namespace {

std::vector<std::string> FlagsOf(const CLI::App* verb) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : verb->get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  return flags;
}

std::vector<const CLI::App*> VerbsOf(const CLI::App* program) {
  return program->get_subcommands([](const CLI::App*) { return true; });
}

std::string Bash(const CLI::App* program) {
  std::string verbs, cases;
  for (const CLI::App* verb : VerbsOf(program)) {
    verbs += " " + verb->get_name();
    cases +=
        fmt::format("    {}) words=\"{}\" ;;\n", verb->get_name(), fmt::join(FlagsOf(verb), " "));
  }
  return fmt::format(
      "_turboquant() {{\n  local word=\"${{COMP_WORDS[COMP_CWORD]}}\" words=\"{} help --help "
      "--version\"\n"
      "  [ \"$COMP_CWORD\" -gt 1 ] && case \"${{COMP_WORDS[1]}}\" in\n{}    help) ;;\n    *) "
      "words=\"\" ;;\n  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n}}\ncomplete -o default -F _turboquant "
      "turboquant\n",
      verbs.substr(1), cases);
}

std::string Zsh(const CLI::App* program) {
  std::string verbs, cases;
  for (const CLI::App* verb : VerbsOf(program)) {
    verbs += " " + verb->get_name();
    cases += fmt::format("    {}) compadd -- {}; _files ;;\n", verb->get_name(),
                         fmt::join(FlagsOf(verb), " "));
  }
  return fmt::format(
      "#compdef turboquant\n_turboquant() {{\n  if (( CURRENT == 2 )); then\n    compadd --{} help "
      "--help --version\n    return\n"
      "  fi\n  case \"$words[2]\" in\n{}  esac\n}}\ncompdef _turboquant turboquant\n",
      verbs, cases);
}

std::string FishQuoted(std::string text) {
  for (size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return "'" + text + "'";
}

std::string Fish(const CLI::App* program) {
  std::string script;
  for (const CLI::App* verb : VerbsOf(program)) {
    script += fmt::format("complete -c turboquant -n __fish_use_subcommand -a {} -d {}\n",
                          verb->get_name(), FishQuoted(verb->get_description()));
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) {
        script +=
            fmt::format("complete -c turboquant -n '__fish_seen_subcommand_from {}' -l {} -d {}\n",
                        verb->get_name(), name, FishQuoted(option->get_description()));
      }
    }
  }
  return script;
}

}  // namespace

Verb AddCompletion(CLI::App* program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* verb = program->add_subcommand(
      "completion", "print a completion script: turboquant completion bash > FILE");
  verb->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  return {
      verb, [shell, program] {
        Print(*shell == "bash" ? Bash(program) : *shell == "zsh" ? Zsh(program) : Fish(program));
        return kExitDone;
      }};
}

}  // namespace turboquant::cli
