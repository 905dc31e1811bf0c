// What the CPU (and the operating system) offers to the kernels.
#ifndef TURBOQUANT_KERNELS_CPU_FEATURES_H_
#define TURBOQUANT_KERNELS_CPU_FEATURES_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace turboquant {

// Weakest first among those of one architecture (AArch64: scalar, neon; x86-64: the others).
enum class Isa : uint8_t { kScalar, kNeon, kAvx2, kAvx512 };
inline constexpr std::array kAllIsas = {Isa::kScalar, Isa::kNeon, Isa::kAvx2, Isa::kAvx512};
std::string_view Name(Isa isa);
Result<Isa> ParseIsa(std::string_view text);

struct CpuFeatures {
  bool avx2 = false;    // AVX2 + FMA + F16C
  bool avx512 = false;  // F + BW + DQ + VL + VNNI: what kernels/avx512 is compiled for (no VBMI:
                        // Cascade Lake)
  bool avx512_bf16 = false;
  bool neon = false;     // Advanced SIMD of AArch64
  bool dotprod = false;  // its sdot and udot (FEAT_DotProd, optional from Armv8.2 on)
  bool i8mm = false;     // and its smmla and ummla (FEAT_I8MM, the same)

  bool Contains(const CpuFeatures& needed) const {
    return (avx2 || !needed.avx2) && (avx512 || !needed.avx512) &&
           (avx512_bf16 || !needed.avx512_bf16) && (neon || !needed.neon) &&
           (dotprod || !needed.dotprod) && (i8mm || !needed.i8mm);
  }
  std::string ToString() const;  // "avx2 fma f16c ..."
};
// x86-64: CPUID, and XGETBV for what the operating system saves. AArch64: what Linux says in
// AT_HWCAP and AT_HWCAP2. Other architectures: all false.
CpuFeatures DetectCpuFeatures();
// Whether the CPU has the base features of an instruction set.
bool CanRun(Isa isa, const CpuFeatures& cpu);
// The strongest that it can run.
Isa BestIsa(const CpuFeatures& cpu);

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_CPU_FEATURES_H_
