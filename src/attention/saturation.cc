#include "attention/saturation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace turboquant {
namespace {

constexpr std::pair<KvSide, const char*> kSides[] = {{KvSide::kKey, "K"}, {KvSide::kValue, "V"}};

// Places with one kind of finding, and the worst of them.
class Finding {
 public:
  // kind: what is counted, "heads".
  explicit Finding(const char* kind) : kind_(kind) {}
  void Add(double badness, const std::string& place) {
    ++num_places_;
    if (num_places_ > 1 && badness <= worst_) return;
    worst_ = badness;
    worst_place_ = place;
  }
  // "12 heads, the worst layer 3 K head 1: ..."; nothing where none was added.
  void Report(const std::function<std::string(double)>& what,
              std::vector<std::string>* lines) const {
    if (num_places_ == 0) return;
    const std::string places =
        num_places_ == 1 ? worst_place_
                         : fmt::format("{} {}, the worst {}", num_places_, kind_, worst_place_);
    lines->push_back(fmt::format("static scales: {}: {}", places, what(worst_)));
  }

 private:
  const char* kind_;
  int64_t num_places_ = 0;
  double worst_ = 0;
  std::string worst_place_;
};

struct Findings {
  Finding corrected{"heads"}, clipped{"heads"}, unused{"heads"}, exchanged{"pairs of heads"};
};

void AddHead(const SaturationCounts::Layer& layer, KvSide side, const KvSideSpec& spec, size_t head,
             const std::string& place, Findings* findings) {
  const SaturationCounts::Side& counts = layer.Of(side);
  const int64_t blocks = layer.num_blocks[head];
  if (!spec.fixed && counts.reach[head] > kMostReach) {
    findings->corrected.Add(static_cast<double>(counts.reach[head]), place);
  }
  const double ends = layer.num_codes[head] == 0 ? 0
                                                 : static_cast<double>(counts.end_codes[head]) /
                                                       static_cast<double>(layer.num_codes[head]);
  if (spec.fixed && ends > kEndCodeAlarm) findings->clipped.Add(ends, place);
  // One range for all heads is that of the largest.
  const float reach = spec.granularity == ScaleGranularity::kPerTensor
                          ? *std::ranges::max_element(counts.reach)
                          : counts.reach[head];
  if (blocks >= kBlocksToJudge && reach < kLeastReach) {
    findings->unused.Add(1 - static_cast<double>(reach), place);
  }
}

// Of one side of a layer: whether the heads that reach most and least of their ranges look as if
// they had each other's. place: "layer 3 K".
void CompareHeads(const SaturationCounts::Layer& layer, KvSide side, const KvSideSpec& spec,
                  const std::string& place, Findings* findings) {
  if (spec.granularity == ScaleGranularity::kPerTensor) return;  // one range for all
  if (std::ranges::min(layer.num_blocks) < kBlocksToJudge) return;
  const std::vector<float>& reach = layer.Of(side).reach;
  const auto [least, most] = std::ranges::minmax_element(reach);
  if (*least >= kSoundReach || *most <= 1 || *most < kMostUnlike * *least) return;
  findings->exchanged.Add(
      static_cast<double>(*most / *least),
      fmt::format("{} heads {} and {}", place, most - reach.begin(), least - reach.begin()));
}

// Of one counter over all layers and heads; of_layer gives a layer's [num_kv_heads].
template <typename OfLayer>
int64_t Total(const SaturationCounts& counts, const OfLayer& of_layer) {
  int64_t total = 0;
  for (const SaturationCounts::Layer& layer : counts.layers) {
    const std::span<const int64_t> heads = of_layer(layer);
    total = std::accumulate(heads.begin(), heads.end(), total);
  }
  return total;
}

}  // namespace

SaturationCounts ZeroCounts(std::span<const KvCacheSpec> layers) {
  SaturationCounts counts;
  for (const KvCacheSpec& spec : layers) {
    const auto heads = static_cast<size_t>(spec.num_kv_heads);
    const SaturationCounts::Side side = {.end_codes = std::vector<int64_t>(heads),
                                         .corrected_blocks = std::vector<int64_t>(heads),
                                         .reach = std::vector<float>(heads)};
    counts.layers.push_back({.k = side,
                             .v = side,
                             .num_codes = std::vector<int64_t>(heads),
                             .num_blocks = std::vector<int64_t>(heads)});
  }
  return counts;
}

double EndCodeShare(const SaturationCounts& counts, KvSide side) {
  const int64_t codes = Total(counts, [](const auto& layer) { return std::span(layer.num_codes); });
  const int64_t ends =
      Total(counts, [side](const auto& layer) { return std::span(layer.Of(side).end_codes); });
  return codes == 0 ? 0.0 : static_cast<double>(ends) / static_cast<double>(codes);
}

int64_t NumCorrectedBlocks(const SaturationCounts& counts, KvSide side) {
  return Total(counts,
               [side](const auto& layer) { return std::span(layer.Of(side).corrected_blocks); });
}

int64_t NumBlocks(const SaturationCounts& counts) {
  return Total(counts, [](const auto& layer) { return std::span(layer.num_blocks); });
}

std::vector<std::string> SaturationWarnings(const SaturationCounts& counts,
                                            std::span<const KvCacheSpec> layers) {
  Findings findings;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const auto& [side, name] : kSides) {
      const KvSideSpec& spec = side == KvSide::kKey ? layers[i].k : layers[i].v;
      if (!IsStatic(spec.granularity)) continue;
      CompareHeads(counts.layers[i], side, spec, fmt::format("layer {} {}", i, name), &findings);
      for (size_t head = 0; head < static_cast<size_t>(layers[i].num_kv_heads); ++head) {
        AddHead(counts.layers[i], side, spec, head,
                fmt::format("layer {} {} head {}", i, name, head), &findings);
      }
    }
  }
  std::vector<std::string> lines;
  findings.corrected.Report(
      [](double reach) {
        return fmt::format(
            "values reach {:.2g} times the range (alarm at {}), their blocks were given a larger "
            "scale; calibrate on text like this, or use dynamic scales",
            reach, kMostReach);
      },
      &lines);
  findings.clipped.Report(
      [](double share) {
        return fmt::format(
            "{:.2g} % of the codes are at the ends of the range (alarm at {} %): values are cut "
            "off; calibrate on text like this, or leave out ':fixed'",
            100 * share, 100 * kEndCodeAlarm);
      },
      &lines);
  findings.unused.Report(
      [](double rest) {
        return fmt::format(
            "values reach only {:.2g} of the range (alarm at {}): was the table made for this "
            "model and these heads?",
            1 - rest, kLeastReach);
      },
      &lines);
  findings.exchanged.Report(
      [](double ratio) {
        return fmt::format(
            "the first is beyond its range and reaches {:.2g} times as far in it as the second "
            "(alarm at {}): are heads exchanged in the table?",
            ratio, kMostUnlike);
      },
      &lines);
  return lines;
}

}  // namespace turboquant
