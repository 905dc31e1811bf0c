// Attention alone: our kernels on a paged cache with shuffled block ids, beside
// ggml_flash_attn_ext on the same shapes and a streaming read by the same threads, turn by turn in
// one process. Every list option is crossed with every other one:
//
//   attention --formats int8,int4,f16 --ggml f16,q8_0,q4_0 --head-dims 64,128 --groups 1,3,4,8
//             --contexts 1024,16384 --queries 1,4,64,512 --threads 1,2 --csv table.csv
//
// `--formats all` takes every pair of a K and a V format. `--ik LIBRARY` adds ik_llama.cpp's
// attention in the formats of --ggml.
//   ms      attention of one layer: median, shortest and longest of the turns
//   GB/s    bytes of K and V with scales, those of one layer by the median
//   read    the same of a streaming read, its turns just before those of the row
//   share%  GB/s by read
//   GMAC/s  multiply-adds of both products, causal; peak% by what registers alone give, integer or
//           FMA (yardsticks.h)
// A context counts the queries' own tokens from 64 queries on; one query and a few come after it.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/check.h"
#include "bench/attention/contender.h"
#include "bench/attention/yardsticks.h"
#include "codec/kv_cache_spec.h"
#include "kernels/kernel_table.h"

namespace turboquant::bench {
namespace {

struct Options {
  std::vector<std::string> formats = {"int8", "int4", "f16"};
  std::vector<std::string> ggml = {"f16", "q8_0", "q4_0"};
  std::vector<int> head_dims = {128}, groups = {4}, contexts = {16384}, queries = {1};
  std::vector<int> threads = {1, 2}, sequences = {1}, block_sizes = {64};
  std::vector<std::string> prefixes = {"own"};
  int kv_heads = 8;
  int min_megabytes = 160;
  int turns = 9;
  std::string isa = "auto";
  std::string csv;
  std::string ik;  // path of its library
};

constexpr size_t kReadBytes = size_t{160} << 20;  // several times the last-level caches at hand

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

std::string ModelOfCpu() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown", family;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) model = line.substr(colon + 2);
    if (line.starts_with("cpu family")) family = line.substr(colon + 2);
  }
  std::ranges::replace(model, ',', ' ');
  return family.empty() ? model : fmt::format("{} family {}", model, family);
}

std::string Date() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

class Table {
 public:
  explicit Table(const std::string& csv) {
    if (!csv.empty()) {
      const bool fresh = !std::ifstream(csv).good();
      csv_.open(csv, std::ios::app);
      CHECK(csv_.good());
      if (fresh) csv_ << kColumns;
    }
    fmt::print(
        "{:>10} {:>9} {:>9} {:>4} {:>2} {:>6} {:>4} {:>3} {:>6} {:>2} {:>4} {:>27} {:>7} "
        "{:>7} {:>6} {:>7} {:>5}\n",
        "engine", "k", "v", "d", "g", "ctx", "q", "seq", "prefix", "t", "bs", "ms [min..max]",
        "GB/s", "read", "share%", "GMAC/s", "peak%");
  }

  void Add(const Contender& c, const Shape& shape, int num_threads, std::vector<double> seconds,
           const std::vector<double>& reads, const PeakRates& peaks) {
    std::ranges::sort(seconds);
    const double layers = c.num_layers;
    const double median = Median(seconds) / layers;
    const double gigabytes = static_cast<double>(c.cache_bytes) / layers * 1e-9;
    const double read = Median(reads), share = 100 * gigabytes / median / read;
    const double rate = shape.MultiplyAdds() / median * 1e-9;
    const double peak = (c.integer ? peaks.integer : peaks.floating) * 1e-9;
    const double peak_share = peak > 0 ? 100 * rate / peak : 0;
    const char* prefix = shape.shared ? "shared" : "own";
    const std::string ms =
        fmt::format("{:.3f} [{:.3f}..{:.3f}]", 1e3 * median, 1e3 * seconds.front() / layers,
                    1e3 * seconds.back() / layers);
    fmt::print(
        "{:>10} {:>9} {:>9} {:>4} {:>2} {:>6} {:>4} {:>3} {:>6} {:>2} {:>4} {:>27} {:>7.2f} "
        "{:>7.2f} {:>6.1f} {:>7.1f} {:>5.1f}\n",
        c.engine, c.k, c.v, shape.head_dim, shape.group, shape.context, shape.queries,
        shape.sequences, prefix, num_threads, shape.block_size, ms, gigabytes / median, read, share,
        rate, peak_share);
    std::fflush(stdout);
    if (!csv_.is_open()) return;
    csv_ << fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:.4f},{:.4f},{:.4f},{:.3f},"
        "{:.3f},{:.1f},{:.2f},{:.2f},{:.1f}\n",
        Date(), ModelOfCpu(), kCompiler, c.engine, c.isa, c.k, c.v, shape.head_dim,
        shape.num_kv_heads, shape.group, shape.context, shape.queries, shape.sequences, prefix,
        num_threads, shape.block_size, c.num_layers, c.cache_bytes, seconds.size(), 1e3 * median,
        1e3 * seconds.front() / layers, 1e3 * seconds.back() / layers, gigabytes / median, read,
        share, rate, peak, peak_share);
    csv_.flush();
  }

 private:
  static constexpr const char* kColumns =
      "date,machine,compiler,engine,isa,k,v,head_dim,kv_heads,group,context,queries,sequences,"
      "prefix,threads,block_size,layers,cache_bytes,turns,ms_median,ms_min,ms_max,gb_per_s,"
      "read_gb_per_s,share_percent,gmac_per_s,peak_gmac_per_s,peak_percent\n";
  std::ofstream csv_;
};

// The variants of a shape whose differences are of interest take turns with each other.
std::vector<Shape> Variants(const Options& options, Shape shape) {
  std::vector<Shape> variants;
  for (const std::string& prefix : options.prefixes) {
    for (const int block_size : options.block_sizes) {
      shape.shared = prefix == "shared";
      shape.block_size = block_size;
      variants.push_back(shape);
    }
  }
  return variants;
}

void Measure(const Options& options, const KernelTable& kernels, const Shape& shape, Team& team,
             StreamingRead& reader, const PeakRates& peaks, Table& table) {
  struct Entry {
    Shape shape;
    std::unique_ptr<Contender> contender;
    std::vector<double> seconds, reads;
  };
  std::vector<Entry> entries;
  for (const std::string& format : options.formats) {
    for (const Shape& variant : Variants(options, shape)) {
      entries.push_back({variant, MakeOurs(variant, format, kernels, team.size()), {}, {}});
    }
  }
  for (const std::string& format : options.ggml) {
    entries.push_back({shape, MakeGgml(shape, format, team.size()), {}, {}});
  }
  if (!options.ik.empty()) {
    const MakeContenderFn make = LoadIk(options.ik);
    for (const std::string& format : options.ggml) {
      entries.push_back(
          {shape, std::unique_ptr<Contender>(make(shape, format.c_str(), team.size())), {}, {}});
    }
  }
  for (int turn = -1; turn < options.turns; ++turn) {  // the first one warms up
    for (Entry& entry : entries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the others' threads stop
      const double read = reader.Seconds(team);
      const double time = entry.contender->Run(team);
      if (turn < 0) continue;
      entry.reads.push_back(static_cast<double>(reader.bytes()) * 1e-9 / read);
      entry.seconds.push_back(time);
    }
  }
  for (const Entry& entry : entries) {
    table.Add(*entry.contender, entry.shape, team.size(), entry.seconds, entry.reads, peaks);
  }
}

std::vector<Shape> Shapes(const Options& options) {
  std::vector<Shape> shapes;
  for (const int head_dim : options.head_dims) {
    for (const int group : options.groups) {
      for (const int context : options.contexts) {
        for (const int queries : options.queries) {
          for (const int sequences : options.sequences) {
            shapes.push_back({.head_dim = head_dim,
                              .num_kv_heads = options.kv_heads,
                              .group = group,
                              .context = context,
                              .queries = queries,
                              .sequences = sequences,
                              .min_bytes = static_cast<size_t>(options.min_megabytes) << 20});
          }
        }
      }
    }
  }
  return shapes;
}

void AddOptions(CLI::App* app, Options* options) {
  app->add_option("--formats", options->formats, "our formats, or all")->delimiter(',');
  app->add_option("--ggml", options->ggml, "ggml's: f16, q8_0, q4_0, or none")->delimiter(',');
  app->add_option("--head-dims", options->head_dims)->delimiter(',');
  app->add_option("--groups", options->groups, "query heads per KV head")->delimiter(',');
  app->add_option("--contexts", options->contexts)->delimiter(',');
  app->add_option("--queries", options->queries, "per sequence")->delimiter(',');
  app->add_option("--sequences", options->sequences)->delimiter(',');
  app->add_option("--prefix", options->prefixes, "sequences with an own or a shared context")
      ->delimiter(',')
      ->check(CLI::IsMember({"own", "shared"}));
  app->add_option("--block-sizes", options->block_sizes)->delimiter(',');
  app->add_option("--threads", options->threads)->delimiter(',');
  app->add_option("--kv-heads", options->kv_heads);
  app->add_option("--min-mb", options->min_megabytes,
                  "MiB of K and V that a contender's layers have together")
      ->capture_default_str();
  app->add_option("--turns", options->turns)->check(CLI::Range(1, 1000))->capture_default_str();
  app->add_option("--isa", options->isa);
  app->add_option("--ik", options->ik, "library with ik_llama.cpp's attention");
  app->add_option("--csv", options->csv, "append the rows there");
}

// Replaces "all" by every pair, "none" by nothing.
void ExpandLists(Options* options) {
  if (options->ggml == std::vector<std::string>{"none"}) options->ggml.clear();
  if (options->formats != std::vector<std::string>{"all"}) return;
  options->formats.clear();
  for (const KvCacheDtype k : kAllKvCacheDtypes) {
    for (const KvCacheDtype v : kAllKvCacheDtypes) {
      options->formats.push_back(fmt::format("{}/{}", Name(k), Name(v)));
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Attention alone, beside ggml's and a streaming read");
  AddOptions(&app, &options);
  CLI11_PARSE(app, argc, argv);
  ExpandLists(&options);
  const auto kernels = SelectKernels(options.isa);
  if (!kernels) {
    fmt::print(stderr, "{}\n", kernels.error().message);
    return 2;
  }
  for (const std::string& format : options.formats) {
    if (const auto sides = ParseKvFormat(format, "", "", nullptr); !sides) {
      fmt::print(stderr, "{}\n", sides.error().message);
      return 2;
    }
  }
  Table table(options.csv);
  for (const int num_threads : options.threads) {
    Team team(num_threads);
    StreamingRead reader(kReadBytes, team);
    const PeakRates peaks = MeasurePeaks(kernels->isa, team);
    for (const Shape& shape : Shapes(options)) {
      Measure(options, *kernels, shape, team, reader, peaks, table);
    }
  }
  return 0;
}

}  // namespace
}  // namespace turboquant::bench

int main(int argc, char** argv) { return turboquant::bench::Main(argc, argv); }
