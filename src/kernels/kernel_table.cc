#include "kernels/kernel_table.h"

#include <cstdlib>
#include <vector>

#include "base/check.h"
#include "kernels/rows.h"

namespace turboquant {
namespace {

std::vector<KernelRow> ConcatenateRows() {
  std::vector<KernelRow> rows;
  for (const auto list : {scalar::Rows(), neon::Rows(), avx2::Rows(), avx512::Rows()}) {
    rows.insert(rows.end(), list.begin(), list.end());
  }
  return rows;
}

// The pair of QK and prepare_q must agree on the form of the prepared queries: same folder, told by
// ISA and features.
bool SameFolder(const KernelRow& a, const KernelRow& b) {
  return a.isa == b.isa && a.requires_features.Contains(b.requires_features) &&
         b.requires_features.Contains(a.requires_features);
}

// The strongest row of an operation that `isa` and the CPU allow; rows stand weakest first.
const KernelRow& Strongest(KernelOp op, KvCacheDtype dtype, Isa isa, const CpuFeatures& cpu) {
  const KernelRow* best = nullptr;
  for (const KernelRow& row : AllKernelRows()) {
    if (row.op == op && (IsForAnyFormat(op) || row.dtype == dtype) && row.isa <= isa &&
        cpu.Contains(row.requires_features)) {
      best = &row;
    }
  }
  CHECK(best != nullptr);  // scalar rows exist for every operation and format
  return *best;
}

const KernelRow& PrepareQOf(const KernelRow& qk) {
  for (const KernelRow& row : AllKernelRows()) {
    if (row.op == KernelOp::kPrepareQ && row.dtype == qk.dtype && SameFolder(row, qk)) return row;
  }
  CHECK_EQ(qk.name, "a QK row with its prepare_q row");
  std::abort();
}

}  // namespace

std::span<const KernelRow> AllKernelRows() {
  static const std::vector<KernelRow> rows = ConcatenateRows();
  return rows;
}

KernelTable MakeKernelTable(Isa isa, const CpuFeatures& cpu) {
  KernelTable table;
  table.isa = isa;
  for (const KvCacheDtype dtype : kAllKvCacheDtypes) {
    const KernelRow& qk = Strongest(KernelOp::kQk, dtype, isa, cpu);
    const KernelRow& pv = Strongest(KernelOp::kPv, dtype, isa, cpu);
    const KernelRow& encode = Strongest(KernelOp::kEncode, dtype, isa, cpu);
    table.formats[static_cast<size_t>(dtype)] = {
        PrepareQOf(qk).prepare_q, qk.qk, pv.pv, encode.encode, qk.name, pv.name, encode.name};
  }
  const auto strongest = [&](KernelOp op) -> const KernelRow& {
    return Strongest(op, KvCacheDtype::kF32, isa, cpu);
  };
  table.softmax = strongest(KernelOp::kSoftmax).softmax;
  table.to_half = strongest(KernelOp::kToHalf).to_half;
  table.rotate = strongest(KernelOp::kRotate).rotate;
  table.fit_scales = strongest(KernelOp::kFitScales).fit_scales;
  table.expand_scales = strongest(KernelOp::kExpandScales).expand_scales;
  table.mean_dot = strongest(KernelOp::kMeanDot).mean_dot;
  return table;
}

Result<KernelTable> SelectKernels(std::string_view forced) {
  const char* source = "--isa";
  if (forced.empty()) {
    if (const char* value = std::getenv("TURBOQUANT_ISA"); value != nullptr) {
      forced = value;
      source = "TURBOQUANT_ISA";
    }
  }
  const CpuFeatures cpu = DetectCpuFeatures();
  if (forced.empty() || forced == "auto") return MakeKernelTable(BestIsa(cpu), cpu);
  const Result<Isa> isa = ParseIsa(forced);
  if (!isa) return Fail(isa.error().code, "{}: {}", source, isa.error().message);
  if (!CanRun(*isa, cpu)) {
    return Fail(ErrorCode::kUnsupported, "{} {}: this CPU has {}; the best it can run is {}",
                source, forced, cpu.ToString(), Name(BestIsa(cpu)));
  }
  return MakeKernelTable(*isa, cpu);
}

}  // namespace turboquant
