#include "cli/config_file.h"

#include <toml++/toml.h>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "base/file.h"

namespace turboquant::cli {
namespace {

// A value as it would be written on the command line; nothing for tables and arrays.
std::optional<std::string> AsFlagText(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* real = node.as_floating_point()) return fmt::format("{}", real->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return {};
}

Status SetDefault(const CLI::App& verb, std::string_view path, std::string_view key,
                  const toml::node& node, bool* known) {
  CLI::Option* option = nullptr;
  try {
    option = const_cast<CLI::App&>(verb).get_option("--" + std::string(key));
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
  *known = true;
  const std::optional<std::string> text = AsFlagText(node);
  if (!text)
    return Fail(ErrorCode::kInvalidArgument, "{}: '{}' must be a string, number or boolean", path,
                key);
  try {
    option->default_val(*text);
  } catch (const CLI::Error& error) {
    return Fail(ErrorCode::kInvalidArgument, "{}: '{} = {}' is not a value that --{} takes: {}",
                path, key, *text, key, error.what());
  }
  return {};
}

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Whether a line has characters beyond ASCII outside of strings and comments, where TOML has none:
// toml++ 3.3 looks such characters up in a table of blanks that does not know them all. A string
// that goes on over several lines counts as outside.
bool HasForeignCharacter(std::string_view line) {
  const bool many_lines = line.contains(R"(""")") || line.contains("'''");
  char quote = 0;  // that ends the string we are in
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0 && !many_lines) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
    } else if (c == '#') {
      return false;
    } else if (c == '"' || c == '\'') {
      quote = c;  // not looked at where many_lines
    } else if ((c & 0x80) != 0) {
      return true;
    }
  }
  return false;
}

// Whether a line is a table header whose name does not start like a key. toml++ 3.3 asserts that
// one does before it looks, and in release builds the compiler assumes it.
bool IsBadTableHeader(std::string_view line) {
  const auto skip_blanks = [&] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  };
  skip_blanks();
  if (!line.starts_with('[')) return false;
  line.remove_prefix(1);
  skip_blanks();
  if (line.starts_with('[')) line.remove_prefix(1);
  skip_blanks();
  const char c = line.empty() ? '\n' : line[0];
  return std::isalnum(static_cast<unsigned char>(c)) == 0 &&
         !std::string_view("_-\"']").contains(c);
}

// What toml++ must not see.
Status CheckText(std::string_view content, const std::string& path) {
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  int number = 0;
  while (!content.empty()) {
    ++number;
    const size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    if (HasForeignCharacter(line)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "{}:{}: characters beyond ASCII belong into strings of one line and comments",
                  path, number);
    }
    if (IsBadTableHeader(line)) {
      return Fail(ErrorCode::kInvalidArgument, "{}:{}: expected a name after '['", path, number);
    }
  }
  return {};
}

}  // namespace

std::string FindConfigPath(int argc, const char* const* argv) {
  constexpr std::string_view kFlag = "--config";
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == kFlag && i + 1 < argc) return argv[i + 1];
    if (arg.starts_with(kFlag) && arg.size() > kFlag.size() && arg[kFlag.size()] == '=') {
      return std::string(arg.substr(kFlag.size() + 1));
    }
  }
  const char* environment = std::getenv("TURBOQUANT_CONFIG");
  return environment == nullptr ? "" : environment;
}

Status ApplyConfigFile(const std::string& path, const CommandLine& line) {
  TQ_ASSIGN_OR_RETURN(const std::string content, ReadFile(path));
  TQ_RETURN_IF_ERROR(CheckText(content, path));
  toml::table table;
  try {
    table = toml::parse(content, path);
  } catch (const toml::parse_error& error) {
    return Fail(ErrorCode::kInvalidArgument, "{}:{}: {}", path, error.source().begin.line,
                error.description());
  }
  for (const auto& [key, node] : table) {
    bool known = false;
    for (const Verb& verb : line.verbs) {
      if (const toml::table* section = node.as_table()) {
        if (verb.command->get_name() != key.str()) continue;
        known = true;
        for (const auto& [inner, value] : *section) {
          bool inner_known = false;
          TQ_RETURN_IF_ERROR(SetDefault(*verb.command, path, inner.str(), value, &inner_known));
          if (!inner_known)
            return Fail(ErrorCode::kInvalidArgument, "{}: [{}] has no flag '{}'", path, key.str(),
                        inner.str());
        }
      } else {
        TQ_RETURN_IF_ERROR(SetDefault(*verb.command, path, key.str(), node, &known));
      }
    }
    if (!known)
      return Fail(ErrorCode::kInvalidArgument, "{}: no verb has a flag or table '{}'", path,
                  key.str());
  }
  return {};
}

}  // namespace turboquant::cli
