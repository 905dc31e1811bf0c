#include "attention/exact_tile.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "attention/attention_test_util.h"
#include "base/aligned_buffer.h"
#include "base/half.h"
#include "codec/tile.h"

namespace turboquant {
namespace {

constexpr int kTokens = 48;

class ExactTileTest : public testing::TestWithParam<std::tuple<KvCacheDtype, int>> {
 protected:
  ExactTileTest()
      : dtype_(std::get<0>(GetParam())),
        head_dim_(std::get<1>(GetParam())),
        bytes_(static_cast<size_t>(kTokens * head_dim_ * CodeBits(dtype_) / 8)),
        k_(bytes_),
        v_(bytes_) {}

  ExactTile Tile() {
    return {.dtype = dtype_, .head_dim = head_dim_, .k = k_.data(), .v = v_.data()};
  }
  std::vector<float> Row(int token, int kind) const {
    std::vector<float> row;
    for (int c = 0; c < head_dim_; ++c) {
      row.push_back(100 * attention_test::Uniform(static_cast<uint64_t>(kind),
                                                  static_cast<uint64_t>(token),
                                                  static_cast<uint64_t>(c)));
    }
    return row;
  }
  float Rounded(float x) const {
    return dtype_ == KvCacheDtype::kF16 ? HalfToFloat(FloatToHalf(x)) : x;
  }
  // Value at the place that the codec's own address function names.
  float At(KvSide side, int token, int channel) {
    const TileShape shape = {.side = side, .num_tokens = kTokens, .head_dim = head_dim_};
    const uint8_t* bytes =
        (side == KvSide::kKey ? k_ : v_).data() + AddressOf(dtype_, shape, token, channel).byte;
    if (dtype_ == KvCacheDtype::kF16) {
      uint16_t half;
      std::memcpy(&half, bytes, sizeof(half));
      return HalfToFloat(half);
    }
    float value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }

  KvCacheDtype dtype_;
  int head_dim_;
  size_t bytes_;
  AlignedBuffer<uint8_t> k_, v_;
  ConvertFn to_half_ = MakeKernelTable(Isa::kScalar, DetectCpuFeatures()).to_half;
};

TEST_P(ExactTileTest, TokensLieWhereTheFormatSaysAndLeaveOthersAlone) {
  for (const int token : {0, 1, 15, 16, 17, 46, 47}) {
    k_ = AlignedBuffer<uint8_t>(bytes_);
    v_ = AlignedBuffer<uint8_t>(bytes_);
    const std::vector<float> k = Row(token, 1), v = Row(token, 2);
    WriteToken(Tile(), token, k.data(), v.data(), to_half_);
    for (int t = 0; t < kTokens; ++t) {
      for (int c = 0; c < head_dim_; ++c) {
        const auto i = static_cast<size_t>(c);
        ASSERT_EQ(At(KvSide::kKey, t, c), t == token ? Rounded(k[i]) : 0.0f) << t << ' ' << c;
        ASSERT_EQ(At(KvSide::kValue, t, c), t == token ? Rounded(v[i]) : 0.0f) << t << ' ' << c;
      }
    }
  }
}

TEST_P(ExactTileTest, GatherReadsTokensBack) {
  for (int token = 0; token < kTokens; ++token) {
    WriteToken(Tile(), token, Row(token, 1).data(), Row(token, 2).data(), to_half_);
  }
  const auto d = static_cast<size_t>(head_dim_);
  std::vector<float> k(kTokens * d), v(kTokens * d);
  GatherKeys(Tile(), kTokens, k.data());
  GatherValues(Tile(), kTokens, v.data());
  for (int token = 0; token < kTokens; ++token) {
    const std::vector<float> k_row = Row(token, 1), v_row = Row(token, 2);
    for (size_t c = 0; c < d; ++c) {
      ASSERT_EQ(k[static_cast<size_t>(token) * d + c], Rounded(k_row[c]));
      ASSERT_EQ(v[static_cast<size_t>(token) * d + c], Rounded(v_row[c]));
    }
  }
}

TEST_P(ExactTileTest, CopySlotsTakesWholeGroups) {
  for (int token = 0; token < kTokens; ++token) {
    WriteToken(Tile(), token, Row(token, 1).data(), Row(token, 2).data(), to_half_);
  }
  for (const int slots : {1, 16, 17, 48}) {
    AlignedBuffer<uint8_t> k(bytes_), v(bytes_);
    CopySlots(Tile(), slots,
              {.dtype = dtype_, .head_dim = head_dim_, .k = k.data(), .v = v.data()});
    const size_t copied = bytes_ / 3 * static_cast<size_t>((slots + 15) / 16);
    EXPECT_EQ(std::memcmp(k.data(), k_.data(), copied), 0);
    EXPECT_EQ(std::memcmp(v.data(), v_.data(), copied), 0);
    for (size_t i = copied; i < bytes_; ++i) ASSERT_EQ(k[i] | v[i], 0) << i;
  }
}

TEST_P(ExactTileTest, StoredValuesAreFinite) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float largest = dtype_ == KvCacheDtype::kF16 ? kMaxHalf : std::numeric_limits<float>::max();
  std::vector<float> row(static_cast<size_t>(head_dim_), 1.0f);
  row[3] = kInf;
  row[4] = -kInf;
  row[5] = std::numeric_limits<float>::quiet_NaN();
  row[6] = std::numeric_limits<float>::max();
  WriteToken(Tile(), 7, row.data(), row.data(), to_half_);
  for (const KvSide side : {KvSide::kKey, KvSide::kValue}) {
    EXPECT_EQ(At(side, 7, 3), largest);
    EXPECT_EQ(At(side, 7, 4), -largest);
    EXPECT_EQ(At(side, 7, 5), 0.0f);
    EXPECT_EQ(At(side, 7, 6), largest);
    EXPECT_EQ(At(side, 7, 7), 1.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, ExactTileTest,
                         testing::Combine(testing::Values(KvCacheDtype::kF16, KvCacheDtype::kF32),
                                          testing::Values(16, 64, 80, 256)));

}  // namespace
}  // namespace turboquant
