#include "calibration/calibration_table.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.h"
#include "base/hash.h"
#include "base/json_text.h"
#include "model/fingerprint_json.h"

namespace turboquant {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "turboquant-calibration";
constexpr int kVersion = 2;

float OneIfZero(float range) { return range > 0 ? range : 1.0f; }

CalibratedSide MakeSide(const KvStatistics& statistics, int layer, KvSide side,
                        const ClipRule& rule) {
  CalibratedSide made;
  for (int i = 0; i < statistics.num_kv_heads(layer); ++i) {
    const HeadStatistics& head = statistics.Head(layer, i, side);
    const auto range = [&](const auto& magnitudes, float max) {
      return static_cast<double>(OneIfZero(ClipRange(rule, magnitudes, max)));
    };
    made.ranges.push_back(range(head.magnitudes, head.max));
    made.rotated_ranges.push_back(range(head.rotated_magnitudes, head.rotated_max));
    for (const float max : head.channel_max)
      made.channel_ranges.push_back(static_cast<double>(OneIfZero(max)));
  }
  return made;
}

// Ratios beyond this come from channels that the texts hardly use.
constexpr double kLargestBalance = 64;

std::vector<double> MakeBalance(const KvStatistics& statistics, int layer) {
  std::vector<double> balance;
  for (int i = 0; i < statistics.num_kv_heads(layer); ++i) {
    const HeadStatistics& keys = statistics.Head(layer, i, KvSide::kKey);
    const QueryStatistics& queries = statistics.Queries(layer, i);
    const size_t from = balance.size();
    double log_sum = 0;
    for (size_t c = 0; c < keys.channel_block_squares.size(); ++c) {
      const double q = queries.channel_sum_squares[c] / static_cast<double>(queries.num_queries);
      const double k = keys.channel_block_squares[c] / static_cast<double>(keys.num_tokens);
      const double ratio = std::pow(q / k, 0.25);
      balance.push_back(std::isfinite(ratio) && ratio > 0 ? ratio : 1.0);
      log_sum += std::log(balance.back());
    }
    const double mean = std::exp(log_sum / static_cast<double>(balance.size() - from));
    for (size_t c = from; c < balance.size(); ++c) {
      balance[c] = std::clamp(balance[c] / mean, 1 / kLargestBalance, kLargestBalance);
    }
  }
  return balance;
}

Json SideToJson(const CalibratedSide& side, bool imported) {
  Json json = {{"ranges", side.ranges}};
  if (imported) return json;
  json["rotated_ranges"] = side.rotated_ranges;
  json["channel_ranges"] = side.channel_ranges;
  return json;
}

std::string Digest(const Json& layers) {
  Hasher hasher;
  hasher.Add(layers.dump());
  return hasher.Hex();
}

// Reads one file; every failure names the path and the place inside.
class Reader {
 public:
  Reader(const Json& document, const std::string& path) : document_(document), path_(path) {}
  Result<CalibrationTable> Read() const;

 private:
  template <typename... Args>
  std::unexpected<Error> Bad(fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorCode::kInvalidArgument, "{}: {}", path_,
                fmt::format(format, std::forward<Args>(args)...));
  }
  Status ReadHeader(CalibrationTable* table) const;
  Result<std::vector<double>> ReadRanges(const Json& side, const char* key, size_t count,
                                         const std::string& place) const;
  Status CheckHeads(const CalibratedSide& side, size_t head_dim, const std::string& place) const;
  Result<std::vector<double>> ReadBalance(const Json& layer, const CalibrationTable& table,
                                          size_t index) const;
  Result<CalibratedSide> ReadSide(const Json& layer, const char* key, const CalibrationTable& table,
                                  size_t index) const;

  const Json& document_;
  const std::string& path_;
};

Status Reader::ReadHeader(CalibrationTable* table) const {
  if (!document_.is_object() || document_.value("format", Json()) != kFormat) {
    return Bad("not a calibration table (no \"format\": \"{}\")", kFormat);
  }
  if (document_.value("version", Json()) != kVersion) {
    return Bad("version {} of the file format; this program reads version {}",
               Shown(document_.value("version", Json())), kVersion);
  }
  for (const char* key : {"model", "recipe"}) {
    if (!document_.contains(key) || !document_[key].is_object()) return Bad("no \"{}\"", key);
  }
  auto model = ParseFingerprint(document_["model"]);
  if (!model) return Bad("{}", model.error().message);
  table->model = std::move(*model);
  const Json& recipe = document_["recipe"];
  if (!recipe.contains("clip_rule") || !recipe["clip_rule"].is_string() ||
      !recipe.contains("num_tokens") || !recipe["num_tokens"].is_number_unsigned() ||
      !recipe.contains("texts") || !recipe["texts"].is_array()) {
    return Bad("the recipe is incomplete");
  }
  table->clip_rule = recipe["clip_rule"].get<std::string>();
  table->num_tokens = recipe["num_tokens"].get<int64_t>();
  for (const Json& text : recipe["texts"]) {
    if (!text.is_string()) return Bad("the recipe's texts are not all strings");
    table->texts.push_back(text.get<std::string>());
  }
  return {};
}

Result<std::vector<double>> Reader::ReadRanges(const Json& side, const char* key, size_t count,
                                               const std::string& place) const {
  if (!side.contains(key) || !side[key].is_array()) return Bad("{}: no {}", place, key);
  if (side[key].size() != count) {
    return Bad("{}: {} {}, the model has {}", place, side[key].size(), key, count);
  }
  std::vector<double> ranges;
  for (size_t i = 0; i < count; ++i) {
    const Json& number = side[key][i];
    const double value = number.is_number() ? number.get<double>() : 0;
    // So that the scale of every format, and its inverse, is a normal number.
    if (!(value >= 0x1p-100 && value <= 0x1p100)) {
      return Bad("{}: {}[{}] is {}: want a number above 0 (2^-100 to 2^100)", place, key, i,
                 Shown(number));
    }
    ranges.push_back(value);
  }
  return ranges;
}

// No head reaches further than its channels: whatever the clip rule, that is another head's range.
Status Reader::CheckHeads(const CalibratedSide& side, size_t head_dim,
                          const std::string& place) const {
  for (size_t head = 0; head < side.ranges.size(); ++head) {
    const double channels =
        std::ranges::max(std::span(side.channel_ranges).subspan(head * head_dim, head_dim));
    if (side.ranges[head] <= channels) continue;
    return Bad(
        "{}: ranges[{}] is {:.4g}, the channels of that head reach {:.4g}: are heads exchanged?",
        place, head, side.ranges[head], channels);
  }
  return {};
}

Result<CalibratedSide> Reader::ReadSide(const Json& layer, const char* key,
                                        const CalibrationTable& table, size_t index) const {
  const std::string place = fmt::format("layer {}, {}", index, key);
  if (!layer.is_object() || !layer.contains(key) || !layer[key].is_object()) {
    return Bad("{}: missing", place);
  }
  const auto heads = static_cast<size_t>(table.model.num_kv_heads);
  const auto channels = heads * static_cast<size_t>(table.model.head_dim);
  CalibratedSide side;
  TQ_ASSIGN_OR_RETURN(side.ranges, ReadRanges(layer[key], "ranges", heads, place));
  if (table.clip_rule == kImported) {
    for (const char* unknown : {"rotated_ranges", "channel_ranges"}) {
      if (layer[key].contains(unknown))
        return Bad("{}: an imported table has no {}", place, unknown);
    }
    return side;
  }
  TQ_ASSIGN_OR_RETURN(side.rotated_ranges, ReadRanges(layer[key], "rotated_ranges", heads, place));
  TQ_ASSIGN_OR_RETURN(side.channel_ranges,
                      ReadRanges(layer[key], "channel_ranges", channels, place));
  TQ_RETURN_IF_ERROR(CheckHeads(side, static_cast<size_t>(table.model.head_dim), place));
  return side;
}

Result<std::vector<double>> Reader::ReadBalance(const Json& layer, const CalibrationTable& table,
                                                size_t index) const {
  if (table.clip_rule == kImported) {
    if (layer.contains("k_balance"))
      return Bad("layer {}: an imported table has no k_balance", index);
    return std::vector<double>{};
  }
  const auto channels =
      static_cast<size_t>(table.model.num_kv_heads) * static_cast<size_t>(table.model.head_dim);
  return ReadRanges(layer, "k_balance", channels, fmt::format("layer {}", index));
}

Result<CalibrationTable> Reader::Read() const {
  CalibrationTable table;
  TQ_RETURN_IF_ERROR(ReadHeader(&table));
  if (!document_.contains("layers") || !document_["layers"].is_array()) return Bad("no layers");
  const Json& layers = document_["layers"];
  if (layers.size() != static_cast<size_t>(table.model.num_layers)) {
    return Bad("{} layers, the model has {}", layers.size(), table.model.num_layers);
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    CalibratedLayer layer;
    TQ_ASSIGN_OR_RETURN(layer.k, ReadSide(layers[i], "k", table, i));
    TQ_ASSIGN_OR_RETURN(layer.v, ReadSide(layers[i], "v", table, i));
    TQ_ASSIGN_OR_RETURN(layer.k_balance, ReadBalance(layers[i], table, i));
    table.layers.push_back(std::move(layer));
  }
  if (document_.value("digest", Json()) != Digest(layers)) {
    return Bad("the ranges do not match the digest: the file was changed after it was written");
  }
  return table;
}

// Share of a head's energy that lies in its mean vector: a bias, which every token carries.
double MeanEnergyShare(const HeadStatistics& head) {
  const auto num_tokens = static_cast<double>(head.num_tokens);
  double mean_energy = 0, energy = 0;
  for (size_t c = 0; c < head.channel_sum.size(); ++c) {
    mean_energy += head.channel_sum[c] * head.channel_sum[c] / (num_tokens * num_tokens);
    energy += head.channel_sum_squares[c] / num_tokens;
  }
  return mean_energy / energy;
}

void WarnOfHead(const HeadStatistics& head, float range, const std::string& place,
                std::vector<std::string>* warnings) {
  if (head.num_tokens == 0 || head.max == 0) {
    warnings->push_back(place + ": nothing but zeros was seen");
    return;
  }
  if (head.num_dropped > 0) {
    warnings->push_back(
        fmt::format("{}: {} tokens with NaN or infinities were left out", place, head.num_dropped));
  }
  std::vector<float> sorted = head.channel_max;
  std::ranges::sort(sorted);
  const float middle = sorted[sorted.size() / 2];
  const auto largest =
      static_cast<size_t>(std::ranges::max_element(head.channel_max) - head.channel_max.begin());
  if (sorted.back() > 8 * middle) {
    warnings->push_back(fmt::format("{}: channel {} reaches {:.3g}, {:.0f} times the middle one",
                                    place, largest, sorted.back(), sorted.back() / middle));
  }
  if (const double share = MeanEnergyShare(head); share > 0.9) {
    warnings->push_back(fmt::format(
        "{}: {:.0f} % of the energy is the same in every token (a bias)", place, 100 * share));
  }
  if (const double share = ClippedShare(head.magnitudes, range); share > 5e-4) {
    warnings->push_back(fmt::format("{}: {:.2g} of the values are clipped", place, share));
  }
}

}  // namespace

Status CalibrationTable::CheckModel(const ModelFingerprint& other) const {
  return CheckSameModel("the calibration table", model, other);
}

Status CalibrationTable::CheckSpec(const KvCacheSpec& spec) const {
  if (clip_rule != kImported) return {};
  if (spec.k.transform == KvTransform::kBalanced) {
    return Fail(ErrorCode::kInvalidArgument,
                "balanced keys: the table was converted from another engine's file, which knows no "
                "queries; --kv-transform centered works, and so does a table of turboquant "
                "calibrate");
  }
  for (const KvSideSpec& side : {spec.k, spec.v}) {
    if (side.granularity == ScaleGranularity::kPerChannel) {
      return Fail(ErrorCode::kInvalidArgument,
                  "per_channel scales: the table was converted from another engine's file, which "
                  "has none; per_tensor and per_head with --kv-transform none work, and so does a "
                  "table of turboquant calibrate");
    }
    if (IsStatic(side.granularity) && side.transform == KvTransform::kRotated) {
      return Fail(
          ErrorCode::kInvalidArgument,
          "{} scales of rotated values: the table was converted from another engine's file, "
          "which has none; --kv-transform none works, and so does a table of turboquant "
          "calibrate",
          Name(side.granularity));
    }
  }
  return {};
}

CalibrationTable MakeCalibrationTable(const KvStatistics& statistics, const ClipRule& rule) {
  CalibrationTable table;
  table.clip_rule = rule.ToString();
  for (int layer = 0; layer < statistics.num_layers(); ++layer) {
    table.layers.push_back({.k = MakeSide(statistics, layer, KvSide::kKey, rule),
                            .v = MakeSide(statistics, layer, KvSide::kValue, rule),
                            .k_balance = MakeBalance(statistics, layer)});
  }
  if (statistics.num_layers() > 0) {
    table.num_tokens = statistics.Head(0, 0, KvSide::kKey).num_tokens;
  }
  return table;
}

std::string ToJson(const CalibrationTable& table) {
  const bool imported = table.clip_rule == kImported;
  Json layers = Json::array();
  for (const CalibratedLayer& layer : table.layers) {
    Json& entry = layers.emplace_back();
    entry = {{"k", SideToJson(layer.k, imported)}, {"v", SideToJson(layer.v, imported)}};
    if (!imported) entry["k_balance"] = layer.k_balance;
  }
  const std::string digest = Digest(layers);
  const Json document = {
      {"format", kFormat},
      {"version", kVersion},
      {"model", ToJson(table.model)},
      {"recipe",
       {{"clip_rule", table.clip_rule}, {"num_tokens", table.num_tokens}, {"texts", table.texts}}},
      {"digest", digest},
      {"layers", std::move(layers)}};
  return document.dump(1) + "\n";
}

Result<CalibrationTable> ParseCalibrationTable(const std::string& json, const std::string& path) {
  TQ_RETURN_IF_ERROR(CheckJson(json, path));
  const Json document = Json::parse(json);
  return Reader(document, path).Read();
}

KvStaticScales StaticScales(const CalibratedLayer& layer, const KvCacheSpec& spec) {
  const auto side_scales = [](const CalibratedSide& calibrated, const KvSideSpec& side) {
    std::vector<double> ranges;
    switch (side.granularity) {
      case ScaleGranularity::kPerTensor:
      case ScaleGranularity::kPerHead:
        ranges =
            side.transform == KvTransform::kRotated ? calibrated.rotated_ranges : calibrated.ranges;
        if (side.granularity == ScaleGranularity::kPerTensor) {
          CHECK(!ranges.empty());
          ranges = {*std::ranges::max_element(ranges)};
        }
        break;
      case ScaleGranularity::kPerChannel:
        ranges = calibrated.channel_ranges;
        break;
      case ScaleGranularity::kNone:
      case ScaleGranularity::kPerBlock:
      case ScaleGranularity::kPerTokenHead:
      case ScaleGranularity::kPerTokenHeadU8:
      case ScaleGranularity::kPerGroup:
        break;
    }
    CHECK(IsStatic(side.granularity) == !ranges.empty());
    std::vector<float> scales;
    for (const double range : ranges) {
      scales.push_back(static_cast<float>(range / static_cast<double>(LargestCode(side.dtype))));
    }
    return scales;
  };
  KvStaticScales scales = {
      .k = side_scales(layer.k, spec.k), .v = side_scales(layer.v, spec.v), .k_balance = {}};
  if (spec.k.transform == KvTransform::kBalanced) {
    scales.k_balance.assign(layer.k_balance.begin(), layer.k_balance.end());
  }
  return scales;
}

std::vector<std::string> CalibrationWarnings(const KvStatistics& statistics,
                                             const CalibrationTable& table) {
  std::vector<std::string> warnings;
  for (int layer = 0; layer < statistics.num_layers(); ++layer) {
    for (int head = 0; head < statistics.num_kv_heads(layer); ++head) {
      for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
        const bool key = side == KvSide::kKey;
        const CalibratedLayer& calibrated = table.layers[static_cast<size_t>(layer)];
        WarnOfHead(statistics.Head(layer, head, side),
                   static_cast<float>(
                       (key ? calibrated.k : calibrated.v).ranges[static_cast<size_t>(head)]),
                   fmt::format("layer {}, {} head {}", layer, key ? "K" : "V", head), &warnings);
      }
    }
  }
  return warnings;
}

}  // namespace turboquant
