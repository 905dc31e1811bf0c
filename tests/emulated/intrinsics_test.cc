// The emulated intrinsics against the CPU's own instructions, where AVX2, FMA and F16C have the
// same operation: all halves, float corner cases against each other, random bits. What has no such
// counterpart (vpdpbusd, vscalefps, vdpbf16ps, masked moves, two-register permutes) is not covered
// here.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "intrinsics.h"
#include "kernels/cpu_features.h"

namespace turboquant {
namespace {

// Values that conversions, rounding and comparisons turn on.
std::vector<uint32_t> Corners() {
  std::vector<uint32_t> corners = {0x7F800000u, 0x7FC00000u, 0x7F800001u, 0x7FFFFFFFu, 0x00000001u,
                                   0x007FFFFFu, 0x00800000u, 0x7F7FFFFFu, 0x4EFFFFFFu, 0x4F000000u,
                                   0x00007FFFu, 0x00008000u, 0x0000FFFFu, 0x00010000u, 0x00FF00FFu};
  for (float x : {0.0f, 0.5f, 1.0f, 1.5f, 2.5f, 126.5f, 255.0f, 65504.0f, 65519.996f, 65520.0f,
                  0x1p-14f, 0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1.0008p0f, 0x1.0018p0f, 0x1.002p0f}) {
    corners.push_back(std::bit_cast<uint32_t>(x));
  }
  const size_t count = corners.size();
  for (size_t i = 0; i < count; ++i) corners.push_back(corners[i] ^ 0x80000000u);
  return corners;
}

bool IsNan(uint32_t bits) { return std::isnan(std::bit_cast<float>(bits)); }

void ExpectSame(const Lanes& a, const Lanes& b, const Lanes& c) {
  for (size_t i = 0; i < NativeOps().size(); ++i) {
    const IntrinsicOp& emulated = EmulatedOps()[i];
    const IntrinsicOp& native = NativeOps()[i];
    const Lanes actual = emulated.run(a, b, c);
    const Lanes expected = native.run(a, b, c);
    for (size_t lane = 0; lane < 16; ++lane) {
      if (native.float_lanes && IsNan(actual[lane]) && IsNan(expected[lane])) continue;
      ASSERT_EQ(actual[lane], expected[lane])
          << native.name << std::hex << " lane " << lane << " of a " << a[lane] << " b " << b[lane]
          << " c " << c[lane];
    }
  }
}

class EmulatedIntrinsics : public testing::Test {
 protected:
  void SetUp() override {
    if (!DetectCpuFeatures().avx2) GTEST_SKIP() << "needs AVX2, FMA and F16C to compare with";
  }
};

TEST_F(EmulatedIntrinsics, SameOperations) {
  ASSERT_EQ(EmulatedOps().size(), NativeOps().size());
  for (size_t i = 0; i < NativeOps().size(); ++i)
    EXPECT_EQ(EmulatedOps()[i].name, NativeOps()[i].name);
}

TEST_F(EmulatedIntrinsics, CornersAgainstCorners) {
  const std::vector<uint32_t> corners = Corners();
  for (size_t i = 0; i < corners.size(); ++i) {
    Lanes a, b, c;
    for (size_t start = 0; start < corners.size(); start += 16) {
      for (size_t lane = 0; lane < 16; ++lane) {
        a[lane] = corners[i];
        b[lane] = corners[(start + lane) % corners.size()];
        c[lane] = corners[(i + 7 * lane + start) % corners.size()];
      }
      ExpectSame(a, b, c);
      ExpectSame(b, a, c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(EmulatedIntrinsics, AllHalfsAndRandomBits) {
  uint64_t state = 1;
  for (uint32_t half = 0; half < 65536; half += 32) {
    Lanes a, b, c;
    for (uint32_t lane = 0; lane < 16; ++lane) {
      a[lane] = (half + 2 * lane) | (half + 2 * lane + 1) << 16;
      state = state * 6364136223846793005u + 1442695040888963407u;
      b[lane] = static_cast<uint32_t>(state >> 32);
      // Near a: so that sums and comparisons meet ties and small differences.
      c[lane] = a[lane] + static_cast<uint32_t>(state >> 62);
    }
    ExpectSame(a, b, c);
    ExpectSame(b, c, a);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace turboquant
