// Checked access to the fields of a config.json. Only for planner/hf_*.cc.
#ifndef TURBOQUANT_PLANNER_HF_FIELDS_H_
#define TURBOQUANT_PLANNER_HF_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace turboquant {

// Bounds of what is believed: far above any model, low enough that products of a few stay in 64
// bits.
inline constexpr int kMaxPlannedLayers = 1024;
inline constexpr int kMaxPlannedHeads = 4096;
inline constexpr int kMaxPlannedHeadDim = 1 << 14;
inline constexpr int kMaxPlannedWidth = 1 << 22;  // hidden, feed-forward, vocabulary
inline constexpr int kMaxPlannedContext = 1 << 30;
inline constexpr int kMaxPlannedExperts = 1 << 16;

class HfFields {
 public:
  // name: the path, for messages. `fields` must be an object and outlive this.
  HfFields(const nlohmann::json& fields, std::string_view name) : fields_(fields), name_(name) {}

  // Absent or null.
  bool Missing(const char* key) const;
  // An integer in [min, max]; kCorrupt otherwise, and where it is missing without fallback.
  Result<int> Int(const char* key, int min, int max, std::optional<int> fallback = {}) const;
  // The same with another spelling that counts where the first is missing.
  Result<int> IntOf(const char* key, const char* other, int min, int max) const;
  Result<bool> Bool(const char* key, bool fallback) const;
  Result<std::string> String(const char* key, std::string_view fallback) const;
  // An array of exactly `size` integers in [min, max] or strings.
  Result<std::vector<int>> Ints(const char* key, size_t size, int min, int max) const;
  Result<std::vector<std::string>> Strings(const char* key, size_t size) const;

  const std::string& name() const { return name_; }

 private:
  Result<int> Number(const nlohmann::json& value, const char* key, int min, int max) const;
  Result<const nlohmann::json*> Array(const char* key, size_t size) const;

  const nlohmann::json& fields_;
  std::string name_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_PLANNER_HF_FIELDS_H_
