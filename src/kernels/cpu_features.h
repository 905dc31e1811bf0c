// What the CPU (and the operating system) offers to the kernels.
#ifndef TURBOQUANT_KERNELS_CPU_FEATURES_H_
#define TURBOQUANT_KERNELS_CPU_FEATURES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace turboquant {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512 };  // weakest first
std::string_view Name(Isa isa);
Result<Isa> ParseIsa(std::string_view text);

struct CpuFeatures {
  bool avx2 = false;    // AVX2 + FMA + F16C
  bool avx512 = false;  // F + BW + DQ + VL + VNNI: what kernels/avx512 is compiled for (no VBMI:
                        // Cascade Lake)
  bool avx512_bf16 = false;

  bool Contains(const CpuFeatures& needed) const {
    return (avx2 || !needed.avx2) && (avx512 || !needed.avx512) &&
           (avx512_bf16 || !needed.avx512_bf16);
  }
  std::string ToString() const;  // "avx2 fma f16c ..."
};
// CPUID, and XGETBV for what the operating system saves. All false on a CPU of another
// architecture.
CpuFeatures DetectCpuFeatures();
// Best Isa whose base features are there.
Isa BestIsa(const CpuFeatures& cpu);

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_CPU_FEATURES_H_
