#include "cli/version.h"

#include <fmt/format.h>

#include <map>

#include "kernels/cpu_features.h"
#include "kernels/kernel_table.h"

namespace turboquant::cli {

std::string VersionText() {
  std::map<Isa, int> rows;
  for (const KernelRow& row : AllKernelRows()) ++rows[row.isa];
  std::string kernels;
  for (const auto& [isa, count] : rows)
    kernels += fmt::format("{}{} ({} kernels)", kernels.empty() ? "" : ", ", Name(isa), count);
  const CpuFeatures cpu = DetectCpuFeatures();
  return fmt::format("turboquant {}\ncompiler  {}\nCPU       {}\nkernels   {}; in use here: {}\n",
                     TURBOQUANT_VERSION, __VERSION__, cpu.ToString(), kernels, Name(BestIsa(cpu)));
}

}  // namespace turboquant::cli
