#include "planner/answers.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>

#include "planner/bytes.h"
#include "planner/hf_fields.h"

namespace turboquant {
namespace {

constexpr int64_t kMaxContextAsked = 1 << 26;  // what --max-model-len takes
constexpr int64_t kMaxSequencesAsked = 1 << 16;

// From the most exact to the smallest.
std::vector<std::string> FormatsOf(EngineKind engine) {
  switch (engine) {
    case EngineKind::kTurboquant:
      return {"f16", "int8", "int6", "int6/int4", "int4"};
    case EngineKind::kLlamaCpp:
      return {"f16", "q8_0", "q5_1", "q4_0"};
    case EngineKind::kVllm:
      return {"auto", "fp8", "int8_per_token_head", "int4_per_token_head"};
  }
  return {};
}

LedgerOptions With(LedgerOptions options, int64_t context, int64_t num_seqs) {
  options.cache.max_model_len = static_cast<int>(context);
  options.cache.max_num_seqs = static_cast<int>(num_seqs);
  return options;
}

LedgerOptions WithFormat(LedgerOptions options, const std::string& format) {
  options.cache.kv_cache_dtype = format;
  options.cache.kv_scale_granularity.clear();
  return options;
}

bool Fits(const LedgerSource& source, const LedgerOptions& options) {
  const auto ledger = source.Make(options);
  return ledger && ledger->fits();
}

// Largest n in [0, max] for which `good` holds, given that it holds for all below.
int64_t Largest(int64_t max, const std::function<bool(int64_t)>& good) {
  int64_t fits = 0, fails = 1;
  while (fails <= max && good(fails)) {
    fits = fails;
    fails = std::min(2 * fails, max + 1);
    if (fits == max) return max;
  }
  fails = std::min(fails, max + 1);
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (good(middle) ? fits : fails) = middle;
  }
  return fits;
}

int64_t LongestContext(const LedgerSource& source, const LedgerOptions& options) {
  return Largest(kMaxContextAsked, [&](int64_t context) {
    return Fits(source, With(options, context, options.cache.max_num_seqs));
  });
}

int64_t MostSequences(const LedgerSource& source, const LedgerOptions& options, int64_t context) {
  return Largest(kMaxSequencesAsked,
                 [&](int64_t num_seqs) { return Fits(source, With(options, context, num_seqs)); });
}

// Contexts and sequences of the grid.
std::vector<int> GridContexts(const Ledger& ledger) {
  constexpr int kMaxOfGrid = 1 << 17;
  const int longest = ledger.model.max_context > 0 ? ledger.model.max_context : kMaxOfGrid;
  std::vector<int> contexts;
  for (int context = 2048; context <= std::min(longest, kMaxOfGrid); context *= 2)
    contexts.push_back(context);
  contexts.push_back(ledger.max_model_len);
  std::ranges::sort(contexts);
  const auto repeated = std::ranges::unique(contexts);
  contexts.erase(repeated.begin(), repeated.end());
  return contexts;
}

void FillGrid(const LedgerSource& source, const Ledger& ledger, Answers* answers) {
  answers->contexts = GridContexts(ledger);
  answers->sequences = {1, 2, 4, 8, 16, 32, 64, 128};
  for (const std::string& format : FormatsOf(ledger.options.engine)) {
    const LedgerOptions options = WithFormat(ledger.options, format);
    const auto made = source.Make(With(options, ledger.max_model_len, 1));
    if (!made) continue;  // a format that this model, or the other flags, cannot have
    Answers::Capacity capacity{
        .format = format, .bits_per_value = made->profile->BitsPerValue(), .max_sequences = {}};
    for (const int context : answers->contexts) {
      const int64_t most = MostSequences(source, options, context);
      capacity.max_sequences.push_back(most);
      for (const int num_seqs : answers->sequences) {
        answers->grid.push_back({.format = format,
                                 .context = context,
                                 .num_seqs = num_seqs,
                                 .cache_bytes = made->profile->Bytes(context, num_seqs).total(),
                                 .fits = num_seqs <= most});
      }
    }
    answers->capacities.push_back(std::move(capacity));
  }
}

// Collects changes that have been tried.
class ChangeFinder {
 public:
  ChangeFinder(const LedgerSource& source, const Ledger& ledger)
      : source_(source), ledger_(ledger) {}

  // True if it fits and was taken up.
  bool Try(const std::string& flags, const LedgerOptions& options) {
    const auto made = source_.Make(options);
    if (!made || !made->fits()) return false;
    changes_.push_back({flags, options, made->total_bytes, made->limit_bytes});
    return true;
  }

  // The least coarse format with fewer bits that fits.
  bool TryFormats(const LedgerOptions& base, const std::string& more_flags) {
    const double bits = ledger_.profile->BitsPerValue();
    for (const std::string& format : FormatsOf(base.engine)) {
      const LedgerOptions options = WithFormat(base, format);
      const auto made = source_.Make(options);
      if (!made || made->profile->BitsPerValue() >= bits) continue;
      if (Try(FormatFlags(format) + more_flags, options)) return true;
    }
    return false;
  }

  void TryUtilization(const LedgerOptions& base) {
    constexpr double kMost = 0.95;
    if (base.cache.kv_cache_memory || base.cache.memory_utilization >= kMost) return;
    for (int percent = static_cast<int>(100 * base.cache.memory_utilization) + 1;
         percent <= static_cast<int>(100 * kMost); ++percent) {
      LedgerOptions options = base;
      options.cache.memory_utilization = percent / 100.0;
      if (Try(fmt::format("--memory-utilization {:.2f}", percent / 100.0), options)) return;
    }
  }

  bool TrySequences(const LedgerOptions& base, const std::string& before) {
    const int64_t most = MostSequences(source_, base, ledger_.max_model_len);
    if (most < 1 || most >= base.cache.max_num_seqs) return false;
    return Try(before + fmt::format("--max-num-seqs {}", most),
               With(base, ledger_.max_model_len, most));
  }

  bool TryContext(const LedgerOptions& base, const std::string& before) {
    const int64_t longest = LongestContext(source_, base);
    if (longest < 1 || longest >= ledger_.max_model_len) return false;
    return Try(before + fmt::format("--max-model-len {}", longest),
               With(base, longest, base.cache.max_num_seqs));
  }

  // The smallest machine, in whole GiB. Only where the size was not asked for by name.
  void TryMemory(const LedgerOptions& base) {
    if (base.cache.kv_cache_memory || ledger_.total_bytes >= (uint64_t{1} << 60)) return;
    const double wanted = static_cast<double>(ledger_.total_bytes) / base.cache.memory_utilization;
    for (auto gib = static_cast<uint64_t>(std::ceil(wanted / 0x1p30)), last = gib + 2; gib <= last;
         ++gib) {
      LedgerOptions options = base;
      options.usable_bytes = gib << 30;
      if (Try(fmt::format("--memory {}Gi", gib), options)) return;
    }
  }

  std::vector<Change> Find() {
    LedgerOptions base = ledger_.options;
    base.cache.max_model_len = ledger_.max_model_len;
    const bool by_format = TryFormats(base, "");
    TryUtilization(base);
    const bool by_number = TrySequences(base, "");
    const bool by_context = TryContext(base, "");
    if (!by_format && !by_number && !by_context) TryTogether(base);
    TryMemory(base);
    return std::move(changes_);
  }

 private:
  // The coarsest format and fewer or shorter sequences.
  void TryTogether(const LedgerOptions& base) {
    const std::string coarsest = FormatsOf(base.engine).back();
    const LedgerOptions options = WithFormat(base, coarsest);
    const std::string flags = FormatFlags(coarsest) + " ";
    if (TrySequences(options, flags) || TryContext(options, flags)) return;
    TryContext(With(options, ledger_.max_model_len, 1), flags + "--max-num-seqs 1 ");
  }

  std::string FormatFlags(const std::string& format) const {
    std::string flags = fmt::format("--kv-cache-dtype {}", format);
    // What was asked for may not suit the new format; this is what it has by itself.
    if (!ledger_.options.cache.kv_scale_granularity.empty())
      flags += " --kv-scale-granularity per_token_head";
    return flags;
  }

  const LedgerSource& source_;
  const Ledger& ledger_;
  std::vector<Change> changes_;
};

// Share of the weights that one step of num_seqs tokens reads. Experts: how many different ones are
// met if each token chooses evenly.
double ShareOfWeights(const ModelShape& model, int num_seqs) {
  if (model.num_parameters == 0) return 1;
  const auto all = static_cast<double>(model.num_parameters);
  if (model.num_experts == 0) return static_cast<double>(model.active_parameters) / all;
  const double chosen = static_cast<double>(model.experts_per_token) / model.num_experts;
  const double met = 1 - std::pow(1 - chosen, num_seqs);
  const double others = static_cast<double>(model.active_parameters) -
                        static_cast<double>(model.expert_parameters) * chosen;
  return std::min((others + met * static_cast<double>(model.expert_parameters)) / all, 1.0);
}

}  // namespace

Result<Answers> Answer(const LedgerSource& source, const LedgerOptions& options) {
  TQ_ASSIGN_OR_RETURN(const Ledger ledger, source.Make(options));
  Answers answers;
  LedgerOptions fixed = ledger.options;
  fixed.cache.max_model_len = ledger.max_model_len;
  answers.max_context = LongestContext(source, fixed);
  answers.max_sequences = MostSequences(source, fixed, ledger.max_model_len);
  if (!ledger.fits()) answers.changes = ChangeFinder(source, ledger).Find();
  FillGrid(source, ledger, &answers);
  return answers;
}

std::vector<RooflinePoint> Roofline(const Ledger& ledger, double bytes_per_second) {
  std::vector<int> depths = {1};
  for (int depth = 1024; depth < ledger.max_model_len; depth *= 4) depths.push_back(depth);
  if (ledger.max_model_len > 1) depths.push_back(ledger.max_model_len);
  std::vector<RooflinePoint> points;
  for (const int depth : depths) {
    RooflinePoint point{.depth = depth};
    point.weight_bytes = static_cast<uint64_t>(static_cast<double>(ledger.weights_bytes()) *
                                               ShareOfWeights(ledger.model, ledger.max_num_seqs));
    point.cache_bytes =
        ProductOf({static_cast<uint64_t>(ledger.max_num_seqs), ledger.profile->BytesRead(depth)});
    const double bytes = static_cast<double>(SumOf({point.weight_bytes, point.cache_bytes}));
    point.tokens_per_second = bytes > 0 ? ledger.max_num_seqs * bytes_per_second / bytes : 0;
    points.push_back(point);
  }
  return points;
}

}  // namespace turboquant
