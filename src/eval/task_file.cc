#include "eval/task_file.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"

namespace turboquant {
namespace {

using nlohmann::json;

std::unexpected<Error> Wrong(const std::string& place, std::string_view what) {
  return Fail(ErrorCode::kInvalidArgument, "{}: {}", place, what);
}

Status ParseChoices(const json& document, TaskItem* item) {
  const auto choices = document.find("choices");
  if (choices == document.end() || !choices->is_array() || choices->size() < 2) {
    return Wrong(item->place, "\"choices\" is no list of at least two texts");
  }
  for (const json& choice : *choices) {
    if (!choice.is_string() || Trimmed(choice.get_ref<const std::string&>()).empty()) {
      return Wrong(item->place,
                   fmt::format("a choice is {}: want a text that is not blank", Shown(choice)));
    }
    item->choices.push_back(choice.get<std::string>());
  }
  const auto answer = document.find("answer");
  // Compared as it was read: a number beyond an int is not one of the indices either.
  if (answer == document.end() || !answer->is_number_unsigned() ||
      answer->get<uint64_t>() >= choices->size()) {
    return Wrong(item->place, fmt::format("\"answer\" is {}: want the index of a choice, 0 to {}",
                                          answer == document.end() ? "missing" : Shown(*answer),
                                          choices->size() - 1));
  }
  item->answer = answer->get<int>();
  return {};
}

Status ParseExpected(const json& document, TaskItem* item) {
  const auto answer = document.find("answer");
  if (answer == document.end() || !answer->is_string()) {
    return Wrong(item->place, fmt::format("\"answer\" is {}: want a text",
                                          answer == document.end() ? "missing" : Shown(*answer)));
  }
  item->expected = Trimmed(answer->get_ref<const std::string&>());
  // An answer that is compared ends with its line.
  if (item->expected.empty() || item->expected.find_first_of("\r\n") != std::string::npos) {
    return Wrong(item->place, "\"answer\" is no single line of text");
  }
  return {};
}

Result<TaskItem> ParseItem(std::string_view line, const std::string& place) {
  TQ_RETURN_IF_ERROR(CheckJson(line, place));
  const json document = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return Wrong(place, "want one JSON object per line");
  const auto type = document.find("type");
  if (type == document.end() || (*type != "choice" && *type != "exact")) {
    return Wrong(place, fmt::format("\"type\" is {}: want \"choice\" or \"exact\"",
                                    type == document.end() ? "missing" : Shown(*type)));
  }
  TaskItem item = {.place = place,
                   .kind = *type == "choice" ? TaskKind::kChoice : TaskKind::kExact,
                   .prompt = {},
                   .choices = {},
                   .expected = {}};
  TQ_ASSIGN_OR_RETURN(item.prompt, ParseJsonPrompt(document, place));
  TQ_RETURN_IF_ERROR(item.kind == TaskKind::kChoice ? ParseChoices(document, &item)
                                                    : ParseExpected(document, &item));
  return item;
}

}  // namespace

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

Result<std::vector<TaskItem>> ParseTasks(std::string_view content, const std::string& path) {
  std::vector<TaskItem> items;
  int number = 0;
  while (!content.empty()) {
    const size_t end = content.find('\n');
    const std::string_view line = content.substr(0, end);
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
    ++number;
    if (Trimmed(line).empty()) continue;
    TQ_ASSIGN_OR_RETURN(TaskItem item, ParseItem(line, fmt::format("{}:{}", path, number)));
    items.push_back(std::move(item));
  }
  if (items.empty()) return Wrong(path, "holds no task");
  return items;
}

}  // namespace turboquant
