// Takes the place of kernels/cpu_features.cc in check_kernels_avx512_emulated: every AVX-512 row
// may run, since none of them is made of AVX-512 instructions here, and the report says so.
#include "kernels/cpu_features.h"

namespace turboquant {

std::string_view Name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kNeon:
      return "neon";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "";
}

Result<Isa> ParseIsa(std::string_view text) {
  for (const Isa isa : kAllIsas) {
    if (text == Name(isa)) return isa;
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown instruction set '{}'", text);
}

std::string CpuFeatures::ToString() const {
  return "none: AVX-512 intrinsics emulated in plain C++, no AVX-512 was run";
}

CpuFeatures DetectCpuFeatures() { return {.avx2 = true, .avx512 = true, .avx512_bf16 = true}; }

bool CanRun(Isa isa, const CpuFeatures&) { return isa != Isa::kNeon; }
Isa BestIsa(const CpuFeatures&) { return Isa::kAvx512; }

}  // namespace turboquant
