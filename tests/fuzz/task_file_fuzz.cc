// Any bytes as a file of tasks. Refused: with one line that begins with the name. Accepted: every
// item is what its kind promises.
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "eval/task_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turboquant;
  const auto items = ParseTasks({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!items) {
    CHECK(items.error().message.starts_with("fuzz:"));
    CHECK_EQ(items.error().message.find('\n'), std::string::npos);
    CHECK_LT(items.error().message.size(), 1000u);
    return 0;
  }
  CHECK(!items->empty());
  for (const TaskItem& item : *items) {
    CHECK(item.place.starts_with("fuzz:"));
    if (item.kind == TaskKind::kExact) {
      CHECK(!item.expected.empty() && Trimmed(item.expected) == item.expected);
      CHECK(item.choices.empty());
      continue;
    }
    CHECK(item.choices.size() >= 2 && item.answer >= 0);
    CHECK_LT(static_cast<size_t>(item.answer), item.choices.size());
    CHECK(std::ranges::none_of(item.choices, [](const auto& c) { return Trimmed(c).empty(); }));
  }
  return 0;
}
