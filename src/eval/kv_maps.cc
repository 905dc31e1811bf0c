#include "eval/kv_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/heat_image.h"

namespace turboquant {
namespace {

constexpr KvSide kSides[] = {KvSide::kKey, KvSide::kValue};

const char* NameOf(KvSide side) { return side == KvSide::kKey ? "K" : "V"; }

// Of one head of one layer.
using HeadValue = std::function<double(int layer, int head, KvSide side)>;

// Layers across, K heads then V heads down; every cell with its number, full colour at `full`.
std::string HeadMap(int num_layers, int num_heads, double full, const HeadValue& value) {
  std::string html = "<table><tr><th>";
  for (int layer = 0; layer < num_layers; ++layer) html += fmt::format("<th>{}", layer);
  html += "</tr>";
  for (const KvSide side : kSides) {
    for (int head = 0; head < num_heads; ++head) {
      html += fmt::format("<tr><td>{} {}", NameOf(side), head);
      for (int layer = 0; layer < num_layers; ++layer) {
        const double found = value(layer, head, side);
        html += fmt::format("<td style=\"background:rgba(229,87,86,{:.2f})\" title=\"{:.3g}\">",
                            full > 0 ? std::clamp(found / full, 0.0, 1.0) : 0, found);
      }
      html += "</tr>";
    }
  }
  return html + "</table>";
}

// A picture: heads of all layers down, channels across, brightness by powers of ten below `most`.
std::string ChannelImage(const KvErrors& errors, KvSide side, float most,
                         std::vector<float> KvErrors::Head::* magnitudes) {
  constexpr int kPixels = 5;
  constexpr float kDecades = 2;
  std::vector<float> cells;
  int columns = 0;
  for (int layer = 0; layer < errors.num_layers(); ++layer) {
    for (int head = 0; head < errors.num_kv_heads(layer); ++head) {
      const std::vector<float>& row = errors.Of(layer, head, side).*magnitudes;
      columns = static_cast<int>(row.size());
      for (const float x : row) cells.push_back(1 + std::log10(x / most) / kDecades);
    }
  }
  return HeatImage(cells, columns, kPixels);
}

float Largest(const KvErrors& errors, KvSide side,
              std::vector<float> KvErrors::Head::* magnitudes) {
  float most = 0;
  for (int layer = 0; layer < errors.num_layers(); ++layer) {
    for (int head = 0; head < errors.num_kv_heads(layer); ++head) {
      for (const float x : errors.Of(layer, head, side).*magnitudes) most = std::max(most, x);
    }
  }
  return most;
}

}  // namespace

std::string ErrorMap(const KvErrors& errors) {
  const HeadValue error = [&](int layer, int head, KvSide side) {
    return errors.Of(layer, head, side).RelativeError();
  };
  double most = 0;
  for (int layer = 0; layer < errors.num_layers(); ++layer) {
    for (int head = 0; head < errors.num_kv_heads(layer); ++head) {
      for (const KvSide side : kSides) most = std::max(most, error(layer, head, side));
    }
  }
  return fmt::format(
             "<h3>Error of the stored values</h3><p>Root of the squared error over that of the "
             "values (keys: without their block's mean), by layer and KV head; full colour at "
             "{:.3g}, the largest.</p>",
             most) +
         HeadMap(errors.num_layers(), errors.num_kv_heads(0), most, error);
}

std::string ChannelMaps(const KvErrors& errors) {
  std::string html =
      "<h3>Channels before and after the transform</h3><p>The largest magnitude of each channel "
      "(across), heads of all layers from the first down; dark is a hundredth of the largest in "
      "the picture, or less.</p><table><tr><th><th>as the model computes it<th>as it is coded</tr>";
  for (const KvSide side : kSides) {
    html += fmt::format("<tr><td>{}", NameOf(side));
    for (const auto magnitudes : {&KvErrors::Head::model_max, &KvErrors::Head::stored_max}) {
      const float most = Largest(errors, side, magnitudes);
      html += fmt::format("<td>{}<br>the largest {:.3g}",
                          ChannelImage(errors, side, most, magnitudes), most);
    }
    html += "</tr>";
  }
  return html + "</table>";
}

std::string SaturationMap(const SaturationCounts& counts) {
  constexpr double kFull = 0.01;
  const auto share = [&](int layer, int head, KvSide side) {
    const SaturationCounts::Layer& of = counts.layers[static_cast<size_t>(layer)];
    const auto index = static_cast<size_t>(head);
    const auto codes = static_cast<double>(of.num_codes[index]);
    return codes > 0 ? static_cast<double>(of.Of(side).end_codes[index]) / codes : 0.0;
  };
  return "<h3>Codes at the ends of the range</h3><p>Their share, by layer and KV head; full colour "
         "at 1 %. Formats with searched scales clip on purpose.</p>" +
         HeadMap(static_cast<int>(counts.layers.size()),
                 static_cast<int>(counts.layers.front().num_codes.size()), kFull, share);
}

}  // namespace turboquant
