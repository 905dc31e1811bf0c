#include "kernels/kernel_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace turboquant {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr CpuFeatures kNone = {};
constexpr CpuFeatures kAvx2Only = {.avx2 = true};
constexpr CpuFeatures kAvx512Everything = {.avx2 = true, .avx512 = true, .avx512_bf16 = true};
constexpr CpuFeatures kNeonOnly = {.neon = true};
constexpr CpuFeatures kNeonDot = {.neon = true, .dotprod = true};
constexpr CpuFeatures kNeonEverything = {.neon = true, .dotprod = true, .i8mm = true};
// CPUs of every kind; those of another architecture than this build's find scalar rows alone.
constexpr std::array kCpus = {kNone,
                              kAvx2Only,
                              CpuFeatures{.avx2 = true, .avx512 = true},
                              kAvx512Everything,
                              kNeonOnly,
                              kNeonDot,
                              kNeonEverything};

// Sets TURBOQUANT_ISA, or with nullptr removes it, for one test.
class ScopedIsaVariable {
 public:
  explicit ScopedIsaVariable(const char* value) {
    if (const char* present = getenv("TURBOQUANT_ISA"); present != nullptr) before_ = present;
    Set(value);
  }
  ~ScopedIsaVariable() { Set(before_ ? before_->c_str() : nullptr); }
  ScopedIsaVariable(const ScopedIsaVariable&) = delete;
  ScopedIsaVariable& operator=(const ScopedIsaVariable&) = delete;

 private:
  static void Set(const char* value) {
    value == nullptr ? unsetenv("TURBOQUANT_ISA") : setenv("TURBOQUANT_ISA", value, 1);
  }
  std::optional<std::string> before_;
};

TEST(KernelRows, NamesAreUniqueAndTheIsaIsWhatTheFeaturesSay) {
  std::set<std::string_view> names;
  for (const KernelRow& row : AllKernelRows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_THAT(std::string(row.name), HasSubstr("/" + std::string(Name(row.isa))));
    EXPECT_EQ(BestIsa(row.requires_features), row.isa) << row.name;
  }
}

TEST(KernelRows, ScalarRowsExistForEveryOperationAndFormat) {
  std::set<std::string> scalar;
  for (const KernelRow& row : AllKernelRows()) {
    if (row.isa == Isa::kScalar) scalar.insert(std::string(row.name));
  }
  for (const KvCacheDtype dtype : kAllKvCacheDtypes) {
    for (const char* op : {"prepare_q", "qk", "pv", "encode"}) {
      EXPECT_TRUE(scalar.contains(fmt::format("{}/{}/scalar", op, Name(dtype))))
          << op << " " << Name(dtype);
    }
  }
  const auto any_format = {"softmax/scalar",     "to_half/scalar",       "rotate/scalar",
                           "fit_scales/scalar",  "expand_scales/scalar", "mean_dot/scalar",
                           "quantize_row/scalar"};
  for (const char* name : any_format) EXPECT_TRUE(scalar.contains(name)) << name;
  for (const WeightType type : kAllWeightTypes) {
    EXPECT_TRUE(scalar.contains(fmt::format("matmul/{}/scalar", Name(type)))) << Name(type);
  }
  EXPECT_EQ(scalar.size(),
            4 * kAllKvCacheDtypes.size() + any_format.size() + kAllWeightTypes.size());
}

// An instruction set has products of every type and what quantizes their activations, or none.
TEST(KernelRows, ProductsOfWeightsAreCompleteAndNamedByTheirType) {
  std::map<Isa, int> products, quantizers;
  for (const KernelRow& row : AllKernelRows()) {
    if (row.op == KernelOp::kQuantizeRow) ++quantizers[row.isa];
    if (row.op != KernelOp::kMatmul) continue;
    ++products[row.isa];
    EXPECT_EQ(row.name, fmt::format("matmul/{}/{}", Name(row.weights), Name(row.isa)));
    EXPECT_EQ(row.matmul, MatmulOf(row.isa).matmul) << row.name;
  }
  for (const Isa isa : kAllIsas) {
    const bool any = MatmulOf(isa).matmul != nullptr;
    EXPECT_EQ(products[isa], any ? static_cast<int>(kAllWeightTypes.size()) : 0) << Name(isa);
    EXPECT_EQ(quantizers[isa], any ? 1 : 0) << Name(isa);
  }
}

TEST(KernelTable, TakesNoRowTheCpuLacks) {
  std::map<std::string_view, CpuFeatures> needs;
  for (const KernelRow& row : AllKernelRows()) needs[row.name] = row.requires_features;
  for (const KvCacheDtype dtype : kAllKvCacheDtypes) {
    for (const CpuFeatures& cpu : kCpus) {
      const KernelTable table = MakeKernelTable(Isa::kAvx512, cpu);  // the last: every row may be
      const FormatKernels& kernels = table.of(dtype);
      for (const std::string_view name : {kernels.qk_name, kernels.pv_name, kernels.encode_name}) {
        EXPECT_TRUE(cpu.Contains(needs.at(name))) << name << " on " << cpu.ToString();
      }
      const KernelTable forced = MakeKernelTable(Isa::kScalar, cpu);
      EXPECT_THAT(std::string(forced.of(dtype).encode_name), EndsWith("/scalar"));
    }
  }
}

// Rows that are compiled in are taken where the CPU has what they need, and no others.
TEST(KernelTable, TakesTheStrongestRowOfTheArchitecture) {
  const auto qk = [](KvCacheDtype dtype, const CpuFeatures& cpu) {
    return std::string(MakeKernelTable(BestIsa(cpu), cpu).of(dtype).qk_name);
  };
  for (const KvCacheDtype dtype : kAllKvCacheDtypes) {
    EXPECT_THAT(qk(dtype, kNone), EndsWith("/scalar"));
#ifdef TURBOQUANT_HAVE_AVX2
    EXPECT_THAT(qk(dtype, kAvx2Only), EndsWith("/avx2"));
    EXPECT_THAT(qk(dtype, kNeonEverything), EndsWith("/scalar"));
#endif
#ifdef TURBOQUANT_HAVE_NEON
    EXPECT_THAT(qk(dtype, kAvx512Everything), EndsWith("/scalar"));
    EXPECT_THAT(qk(dtype, kNeonOnly), EndsWith(IsInteger(dtype) ? "/scalar" : "/neon"));
    EXPECT_THAT(qk(dtype, kNeonDot), EndsWith(IsInteger(dtype) ? "/neondotprod" : "/neon"));
    EXPECT_THAT(qk(dtype, kNeonEverything), EndsWith(IsInteger(dtype) ? "/neoni8mm" : "/neon"));
#endif
  }
}

TEST(KernelTable, PreparesQueriesInTheFolderOfQk) {
  for (const CpuFeatures& cpu : kCpus) {
    const KernelTable table = MakeKernelTable(BestIsa(cpu), cpu);
    for (const KvCacheDtype dtype : kAllKvCacheDtypes) {
      const FormatKernels& kernels = table.of(dtype);
      const std::string folder(kernels.qk_name.substr(kernels.qk_name.rfind('/')));
      for (const KernelRow& row : AllKernelRows()) {
        if (row.op != KernelOp::kPrepareQ || row.dtype != dtype ||
            row.prepare_q != kernels.prepare_q)
          continue;
        EXPECT_THAT(std::string(row.name), EndsWith(folder));
      }
    }
  }
}

TEST(SelectKernels, FlagThenEnvironmentThenBest) {
  const Isa best = BestIsa(DetectCpuFeatures());
  const ScopedIsaVariable unset(nullptr);  // the suite may run under a forced one
  EXPECT_EQ(SelectKernels("")->isa, best);
  EXPECT_EQ(SelectKernels("scalar")->isa, Isa::kScalar);
  const ScopedIsaVariable variable("scalar");
  EXPECT_EQ(SelectKernels("")->isa, Isa::kScalar);
  EXPECT_EQ(SelectKernels("auto")->isa, best);
}

TEST(SelectKernels, UnknownNamesAreRefusedWithTheirSource) {
  const auto flag = SelectKernels("sse9");
  ASSERT_FALSE(flag.has_value());
  EXPECT_EQ(flag.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(flag.error().message, HasSubstr("--isa"));
  EXPECT_THAT(flag.error().message, HasSubstr("'sse9'"));
  const ScopedIsaVariable variable("AVX2");
  const auto environment = SelectKernels("");
  ASSERT_FALSE(environment.has_value());
  EXPECT_THAT(environment.error().message, HasSubstr("TURBOQUANT_ISA"));
}

TEST(SelectKernels, WhatTheCpuLacksIsRefusedNamingWhatItHas) {
  const CpuFeatures cpu = DetectCpuFeatures();
  for (const Isa isa : {Isa::kNeon, Isa::kAvx2, Isa::kAvx512}) {
    const auto table = SelectKernels(Name(isa));
    EXPECT_EQ(table.has_value(), CanRun(isa, cpu));
    if (table.has_value()) {
      EXPECT_EQ(table->isa, isa);
      continue;
    }
    EXPECT_EQ(table.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(table.error().message, HasSubstr(cpu.ToString()));
  }
}

TEST(CpuFeatures, BetterOnesContainWeakerOnes) {
  const CpuFeatures cpu = DetectCpuFeatures();
  EXPECT_TRUE(!cpu.avx512 || cpu.avx2);
  EXPECT_TRUE(!cpu.avx512_bf16 || cpu.avx512);
  EXPECT_TRUE(!cpu.dotprod || cpu.neon);
  EXPECT_TRUE(!cpu.i8mm || cpu.dotprod);
  EXPECT_FALSE(cpu.avx2 && cpu.neon);
  EXPECT_TRUE(kAvx512Everything.Contains(kAvx2Only));
  EXPECT_FALSE(kAvx2Only.Contains(kAvx512Everything));
  EXPECT_TRUE(kNeonDot.Contains(kNeonOnly));
  EXPECT_FALSE(kNeonOnly.Contains(kNeonDot));
  EXPECT_TRUE(kNeonEverything.Contains(kNeonDot));
  EXPECT_FALSE(kNeonDot.Contains(kNeonEverything));
  EXPECT_FALSE(kAvx512Everything.Contains(kNeonOnly));
  EXPECT_EQ(kNone.ToString(), "no AVX2, no NEON");
  EXPECT_EQ(kAvx2Only.ToString(), "avx2 fma f16c");
  EXPECT_EQ(kNeonEverything.ToString(), "neon dotprod i8mm");
}

}  // namespace
}  // namespace turboquant
