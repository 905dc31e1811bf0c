// check_kernels: runs every row of the kernel table that this CPU can run against its
// specification; --bench times them. Exit status 0: all that ran is right (what was skipped is
// counted and named); 1: a row is wrong; 2: wrong use.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>

#include "check.h"

namespace turboquant::check {
namespace {

constexpr const char* kUsage =
    "check_kernels [--isa scalar|avx2|avx512|neon] [--filter TEXT] [--seed N] [--quick] [--bench]\n"
    "  --isa     only rows of this instruction set\n"
    "  --filter  only rows whose name contains TEXT, e.g. qk/int8\n"
    "  --quick   one case in 10, chosen by the seed\n"
    "  --bench   time the rows instead of checking them\n";

bool ParseOptions(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--quick") {
      options.quick = true;
    } else if (flag == "--bench") {
      options.bench = true;
    } else if (i + 1 == argc) {
      return false;
    } else if (flag == "--isa") {
      options.isa = argv[++i];
      if (!ParseIsa(options.isa)) return false;
    } else if (flag == "--filter") {
      options.filter = argv[++i];
    } else if (flag == "--seed") {
      const char* text = argv[++i];
      const auto [end, error] = std::from_chars(text, text + std::strlen(text), options.seed);
      if (error != std::errc{} || *end != '\0') return false;
    } else {
      return false;
    }
  }
  return true;
}

void CheckRow(RowCheck& check) {
  switch (check.row().op) {
    case KernelOp::kPrepareQ:
      return CheckPrepareQ(check);
    case KernelOp::kQk:
      return CheckQk(check);
    case KernelOp::kSoftmax:
      return CheckSoftmax(check);
    case KernelOp::kPv:
      return CheckPv(check);
    case KernelOp::kEncode:
      return CheckEncode(check);
    case KernelOp::kToHalf:
      return CheckToHalf(check);
    case KernelOp::kRotate:
      return CheckRotate(check);
    case KernelOp::kFitScales:
      return CheckFitScales(check);
    case KernelOp::kExpandScales:
      return CheckExpandScales(check);
    case KernelOp::kMeanDot:
      return CheckMeanDot(check);
    case KernelOp::kQuantizeRow:
      return CheckQuantizeRow(check);
    case KernelOp::kMatmul:
      return CheckMatmul(check);
  }
}

// Number of rows that are wrong.
int CheckRows(const Options& options) {
  const CpuFeatures cpu = DetectCpuFeatures();
  int ok = 0, failed = 0, skipped = 0;
  for (const KernelRow& row : AllKernelRows()) {
    if (!options.isa.empty() && options.isa != Name(row.isa)) continue;
    if (row.name.find(options.filter) == std::string_view::npos) continue;
    if (!cpu.Contains(row.requires_features)) {
      fmt::print("skipped  {} (needs {})\n", row.name, row.requires_features.ToString());
      ++skipped;
      continue;
    }
    RowCheck check(row, options);
    CheckRow(check);
    fmt::print("{}  {} ({} cases)\n", check.failed() ? "FAILED " : "ok     ", row.name,
               check.num_cases());
    check.failed() ? ++failed : ++ok;
  }
  fmt::print("check_kernels: {} rows ok, {} failed, {} skipped; seed {}{}; CPU: {}\n", ok, failed,
             skipped, options.seed, options.quick ? ", quick" : "", cpu.ToString());
  if (ok + failed + skipped == 0) {
    fmt::print(stderr, "no such row\n");
    return 1;
  }
  return failed;
}

}  // namespace
}  // namespace turboquant::check

int main(int argc, char** argv) {
  turboquant::check::Options options;
  if (!turboquant::check::ParseOptions(argc, argv, options)) {
    std::fputs(turboquant::check::kUsage, stderr);
    return 2;
  }
  turboquant::check::InstallCrashReport();
  if (options.bench) {
    turboquant::check::RunBench(options);
    return 0;
  }
  return turboquant::check::CheckRows(options) == 0 ? 0 : 1;
}
