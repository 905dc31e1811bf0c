#include "kernels/cpu_features.h"

#include <array>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace turboquant {
namespace {

constexpr std::array<std::pair<Isa, std::string_view>, kAllIsas.size()> kIsaNames = {
    {{Isa::kScalar, "scalar"},
     {Isa::kNeon, "neon"},
     {Isa::kAvx2, "avx2"},
     {Isa::kAvx512, "avx512"}}};

#if defined(__x86_64__)

struct CpuidLeaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero where the CPU has no such leaf.
CpuidLeaf Cpuid(unsigned leaf, unsigned subleaf) {
  CpuidLeaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

// XCR0: the register files that the operating system saves. As an instruction in assembly, since
// the intrinsic would need -mxsave on this file. Only valid where CPUID reports OSXSAVE.
uint64_t ReadXcr0() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

constexpr bool HasBits(uint64_t value, uint64_t bits) { return (value & bits) == bits; }
constexpr unsigned Bit(int i) { return 1u << i; }

CpuFeatures Detect() {
  CpuFeatures cpu;
  const CpuidLeaf leaf1 = Cpuid(1, 0);
  constexpr unsigned kFma = Bit(12), kOsxsave = Bit(27), kAvx = Bit(28), kF16c = Bit(29);
  if (!HasBits(leaf1.ecx, kOsxsave | kAvx)) return cpu;
  const uint64_t saved = ReadXcr0();
  constexpr uint64_t kYmmState = 0x06;  // SSE and AVX registers
  constexpr uint64_t kZmmState = 0xE6;  // and mask registers, upper halves, zmm16-31
  if (!HasBits(saved, kYmmState)) return cpu;
  const CpuidLeaf leaf7 = Cpuid(7, 0);
  constexpr unsigned kAvx2 = Bit(5);
  cpu.avx2 = HasBits(leaf1.ecx, kFma | kF16c) && HasBits(leaf7.ebx, kAvx2);
  constexpr unsigned kF = Bit(16), kDq = Bit(17), kBw = Bit(30), kVl = Bit(31);  // EBX
  constexpr unsigned kVnni = Bit(11);                                            // ECX
  cpu.avx512 = cpu.avx2 && HasBits(saved, kZmmState) && HasBits(leaf7.ebx, kF | kDq | kBw | kVl) &&
               HasBits(leaf7.ecx, kVnni);
  constexpr unsigned kBf16 = Bit(5);  // EAX of subleaf 1
  cpu.avx512_bf16 = cpu.avx512 && HasBits(Cpuid(7, 1).eax, kBf16);
  return cpu;
}

#elif defined(__aarch64__) && defined(__linux__)

// Bits of AT_HWCAP and AT_HWCAP2, part of the kernel's interface; <asm/hwcap.h> is not everywhere
// or older than the second.
CpuFeatures Detect() {
  constexpr unsigned long kAsimd = 1ul << 1, kAsimdDp = 1ul << 20;  // AT_HWCAP
  constexpr unsigned long kI8mm = 1ul << 13;                        // AT_HWCAP2
  const unsigned long hwcap = getauxval(AT_HWCAP);
  CpuFeatures cpu;
  cpu.neon = (hwcap & kAsimd) != 0;
  cpu.dotprod = cpu.neon && (hwcap & kAsimdDp) != 0;
  cpu.i8mm = cpu.dotprod && (getauxval(AT_HWCAP2) & kI8mm) != 0;
  return cpu;
}

#else

CpuFeatures Detect() { return {}; }

#endif

}  // namespace

std::string_view Name(Isa isa) { return kIsaNames[static_cast<size_t>(isa)].second; }

Result<Isa> ParseIsa(std::string_view text) {
  for (const auto& [isa, name] : kIsaNames) {
    if (text == name) return isa;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "unknown instruction set '{}': auto, scalar, avx2, avx512 or neon", text);
}

std::string CpuFeatures::ToString() const {
  std::string text;
  if (avx2) text += " avx2 fma f16c";
  if (avx512) text += " avx512f avx512bw avx512dq avx512vl avx512vnni";
  if (avx512_bf16) text += " avx512_bf16";
  if (neon) text += " neon";
  if (dotprod) text += " dotprod";
  if (i8mm) text += " i8mm";
  return text.empty() ? "no AVX2, no NEON" : text.substr(1);
}

CpuFeatures DetectCpuFeatures() { return Detect(); }

bool CanRun(Isa isa, const CpuFeatures& cpu) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kNeon:
      return cpu.neon;
    case Isa::kAvx2:
      return cpu.avx2;
    case Isa::kAvx512:
      return cpu.avx512;
  }
  return false;
}

Isa BestIsa(const CpuFeatures& cpu) {
  Isa best = Isa::kScalar;
  for (const Isa isa : kAllIsas) {
    if (CanRun(isa, cpu)) best = isa;
  }
  return best;
}

}  // namespace turboquant
