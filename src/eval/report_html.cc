#include "eval/report_html.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "base/html.h"
#include "eval/kv_maps.h"
#include "model/tokenizer.h"

namespace turboquant {
namespace {

constexpr double kWidth = 720, kHeight = 360, kMargin = 60;  // of a chart, pixels
constexpr double kLeastKl = 1e-9;                            // drawn for anything below

const char* Colour(size_t index) { return kHtmlColours[index % kHtmlColours.size()]; }

// A logarithmic axis of KL and a linear one, with lines at powers of ten.
class Chart {
 public:
  Chart(double x_low, double x_high, double kl_low, double kl_high)
      : x_low_(x_low),
        x_high_(x_high > x_low ? x_high : x_low + 1),
        low_(std::floor(std::log10(std::max(kl_low, kLeastKl)))),
        high_(std::max(low_ + 1, std::ceil(std::log10(std::max(kl_high, kLeastKl))))) {}

  double X(double x) const {
    return kMargin + (x - x_low_) / (x_high_ - x_low_) * (kWidth - 2 * kMargin);
  }
  double Y(double kl) const {
    const double power = std::log10(std::max(kl, kLeastKl));
    return kHeight - kMargin - (power - low_) / (high_ - low_) * (kHeight - 2 * kMargin);
  }
  void Add(std::string_view svg) { body_ += svg; }
  // ticks: where the linear axis has numbers.
  std::string Svg(const std::vector<double>& ticks, std::string_view x_name) const {
    std::string svg =
        fmt::format("<svg viewBox=\"0 0 {} {}\" width={} font-size=12 fill=currentColor>", kWidth,
                    kHeight, kWidth);
    for (double power = low_; power <= high_; power += 1) {
      const double y = Y(std::pow(10, power));
      svg += fmt::format(
          "<line x1={:.1f} x2={:.1f} y1={:.1f} y2={:.1f} stroke=#8884 /><text x={:.1f} y={:.1f} "
          "text-anchor=end>1e{:.0f}</text>",
          kMargin, kWidth - kMargin, y, y, kMargin - 6, y + 4, power);
    }
    for (const double tick : ticks) {
      svg += fmt::format("<text x={:.1f} y={:.1f} text-anchor=middle>{:.4g}</text>", X(tick),
                         kHeight - kMargin + 18, tick);
    }
    return svg +
           fmt::format("<text x={:.1f} y={:.1f} text-anchor=middle>{}</text>", kWidth / 2,
                       kHeight - 14, x_name) +
           body_ + "</svg>";
  }

 private:
  double x_low_, x_high_, low_, high_;  // low_, high_: powers of ten
  std::string body_;
};

std::string Key(const std::vector<EvaluationResult>& results) {
  std::string key = "<p class=key>";
  for (size_t i = 0; i < results.size(); ++i) {
    key += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", Colour(i),
                       EscapeHtml(results[i].kv_cache_dtype));
  }
  return key + "</p>";
}

std::string Table(const std::vector<EvaluationResult>& results) {
  std::string html =
      "<table><tr><th>KV cache<th>bits<th>effective<th>KL mean<th>&plusmn;<th>median<th>99.9 %"
      "<th>top-1 %<th>perplexity</tr>";
  for (const EvaluationResult& result : results) {
    const DivergenceSummary& d = result.divergence;
    html += fmt::format(
        "<tr><td>{}<td>{:.3f}<td>{:.3f}<td>{:.3g}<td>{:.1g}<td>{:.3g}<td>{:.3g}<td>{:.2f}<td>{:.3f}"
        "</tr>",
        EscapeHtml(result.kv_cache_dtype), result.bits_per_value, result.effective_bits, d.kl_mean,
        d.kl_standard_error, d.kl_median, d.kl_p999, 100 * d.top1_agreement, d.perplexity);
  }
  return html + "</table>";
}

// Mean KL with two standard errors over the bits of closed blocks.
std::string BitsChart(const std::vector<EvaluationResult>& results) {
  const auto [few, many] = std::ranges::minmax(results, {}, &EvaluationResult::bits_per_value);
  const auto kl = [](const EvaluationResult& result) { return result.divergence.kl_mean; };
  const auto [low, high] = std::ranges::minmax(results, {}, kl);
  Chart chart(few.bits_per_value - 0.5, many.bits_per_value + 0.5, kl(low), kl(high));
  for (size_t i = 0; i < results.size(); ++i) {
    const DivergenceSummary& d = results[i].divergence;
    const double x = chart.X(results[i].bits_per_value);
    const double bar = 2 * d.kl_standard_error;
    chart.Add(fmt::format(
        "<line x1={0:.1f} x2={0:.1f} y1={1:.1f} y2={2:.1f} stroke={3} /><circle cx={0:.1f} "
        "cy={4:.1f} r=5 fill={3}><title>{5}: {6:.3g}</title></circle>",
        x, chart.Y(d.kl_mean + bar), chart.Y(std::max(d.kl_mean - bar, d.kl_mean / 10)), Colour(i),
        chart.Y(d.kl_mean), EscapeHtml(results[i].kv_cache_dtype), d.kl_mean));
  }
  std::vector<double> ticks;
  for (double bits = std::ceil(few.bits_per_value); bits <= many.bits_per_value + 0.5; bits += 1) {
    ticks.push_back(bits);
  }
  return chart.Svg(ticks, "bits per value");
}

std::string DepthChart(const std::vector<EvaluationResult>& results) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const EvaluationResult& result : results) {
    for (const LengthBucket& bucket : result.buckets) {
      low = std::min(low, bucket.divergence.kl_mean);
      high = std::max(high, bucket.divergence.kl_mean);
    }
  }
  const std::vector<LengthBucket>& buckets = results.front().buckets;
  Chart chart(buckets.front().begin, buckets.back().end, low, high);
  for (size_t i = 0; i < results.size(); ++i) {
    std::string points;
    for (const LengthBucket& bucket : results[i].buckets) {
      points += fmt::format("{:.1f},{:.1f} ", chart.X((bucket.begin + bucket.end) / 2.0),
                            chart.Y(bucket.divergence.kl_mean));
    }
    chart.Add(fmt::format("<polyline points=\"{}\" fill=none stroke={} stroke-width=2 />", points,
                          Colour(i)));
  }
  std::vector<double> ticks;
  for (const LengthBucket& bucket : buckets) ticks.push_back(bucket.begin);
  ticks.push_back(buckets.back().end);
  return chart.Svg(ticks, "position");
}

std::string WorstTable(const EvaluationReport& report, const EvaluationResult& result) {
  constexpr size_t kShown = 24;  // tokens before
  const Tokenizer& tokenizer = report.model.tokenizer();
  std::string html =
      "<table><tr><th>window<th>position<th>KL<th>-log p, reference<th>-log p<th>text, and the "
      "token that followed</tr>";
  for (const WorstToken& worst : result.worst) {
    const std::span<const int32_t> window = report.windows[static_cast<size_t>(worst.window)];
    const auto end = static_cast<size_t>(worst.position) + 1;
    const size_t begin = end > kShown ? end - kShown : 0;
    html += fmt::format(
        "<tr><td>{}<td>{}<td>{:.3g}<td>{:.2f}<td>{:.2f}<td style=\"text-align:left\">{}<b>{}</b>"
        "</tr>",
        worst.window, worst.position, worst.divergence.kl, worst.divergence.nll_reference,
        worst.divergence.nll, EscapeHtml(tokenizer.Decode(window.subspan(begin, end - begin))),
        EscapeHtml(tokenizer.Decode(window.subspan(end, 1))));
  }
  return html + "</table>";
}

}  // namespace

std::string EvaluationHtml(const EvaluationReport& report) {
  const std::vector<EvaluationResult>& results = report.results;
  const std::string title = fmt::format("{}: what its cache costs", report.model.config().name);
  std::string html = fmt::format(
      "<h1>{}</h1><p>KL divergence of the next token from that with an f32 cache, in nats, over {} "
      "positions of {} windows of {} tokens. Reference: perplexity {:.3f}.</p>",
      EscapeHtml(title), results.front().divergence.num_tokens, report.windows.size(),
      report.windows.front().size(), results.front().divergence.perplexity_reference);
  html += Table(results) + "<h2>Bits and KL</h2>" + Key(results) + BitsChart(results);
  html += "<h2>KL by depth</h2>" + DepthChart(results);
  for (const EvaluationResult& result : results) {
    html += fmt::format("<h2>{}</h2>", EscapeHtml(result.kv_cache_dtype));
    if (result.errors != nullptr) html += ErrorMap(*result.errors) + ChannelMaps(*result.errors);
    html += SaturationMap(result.saturation) + "<h3>Worst tokens</h3>" + WorstTable(report, result);
  }
  return HtmlPage(title, html);
}

}  // namespace turboquant
