// fit_scales and expand_scales against the codec, bit for bit; mean_dot within the bound of a sum.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "check.h"
#include "codec/block_mean.h"
#include "codec/scale_fit.h"

namespace turboquant::check {
namespace {

constexpr std::array kHeadDims = {16, 64, 80, 96, 128, 256, 512};
constexpr std::array kTokens = {16, 32, 64, 256};
constexpr std::array kDtypes = {KvCacheDtype::kInt8, KvCacheDtype::kInt6, KvCacheDtype::kInt5,
                                KvCacheDtype::kInt4, KvCacheDtype::kInt3, KvCacheDtype::kInt2};
constexpr size_t kMaxTokens = kMaxBlockTokens;

struct Fitted {
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales;
  int16_t bias = 0;
};

class FitBench {
 public:
  explicit FitBench(RowCheck& check)
      : check_(check),
        x_(kMaxTokens * kMaxHeadDim * 4),
        codes_(kMaxTokens),
        scales_(kMaxTokens * 2) {}

  void Run(KvCacheDtype dtype, int num_tokens, int head_dim, DataKind kind) {
    Rng rng(check_.case_seed());
    const auto tokens = static_cast<size_t>(num_tokens);
    float* x = x_.PlaceArray<float>(tokens * static_cast<size_t>(head_dim));
    const int odd = rng.Below(8);  // now and then values that are not finite, or nearly too large
    for (int t = 0; t < num_tokens; ++t) {
      const double size = std::exp2(rng.Uniform() * 24 - 12) * (odd == 1 ? 1e34 : 1);
      for (int c = 0; c < head_dim; ++c, ++x) {
        *x = static_cast<float>(Draw(kind, c, rng) * size);
        if (odd == 0 && rng.Below(40) == 0) *x = std::numeric_limits<float>::infinity();
        if (odd == 0 && rng.Below(40) == 0) *x = std::numeric_limits<float>::quiet_NaN();
      }
    }
    x -= tokens * static_cast<size_t>(head_dim);
    Fitted expected = {std::vector<uint8_t>(tokens), std::vector<uint16_t>(tokens)};
    FitScales({dtype, x, num_tokens, head_dim, expected.codes.data(), &expected.bias,
               expected.scales.data()});
    uint8_t* codes = codes_.Place(tokens, 0);
    auto* scales = scales_.PlaceArray<uint16_t>(tokens);
    int16_t bias = 0;
    check_.row().fit_scales({dtype, x, num_tokens, head_dim, codes, &bias, scales});
    if (!check_.ExpectGuards(codes_, "codes") || !check_.ExpectGuards(scales_, "scales")) return;
    check_.ExpectBytes(&bias, &expected.bias, sizeof(bias), "bias");
    check_.ExpectBytes(codes, expected.codes.data(), tokens, "codes");
    check_.ExpectBytes(scales, expected.scales.data(), 2 * tokens, "scales");
  }

 private:
  RowCheck& check_;
  GuardedBuffer x_, codes_, scales_;
};

}  // namespace

void CheckFitScales(RowCheck& check) {
  FitBench bench(check);
  for (const KvCacheDtype dtype : kDtypes) {
    for (const int head_dim : kHeadDims) {
      for (const int num_tokens : kTokens) {
        for (const DataKind kind : kAllDataKinds) {
          if (!check.Begin(fmt::format("{} head_dim {} tokens {} values {}",
                                       turboquant::Name(dtype), head_dim, num_tokens, Name(kind))))
            continue;
          bench.Run(dtype, num_tokens, head_dim, kind);
        }
      }
    }
  }
}

void CheckExpandScales(RowCheck& check) {
  GuardedBuffer codes_buffer(kMaxTokens), scales_buffer(kMaxTokens * 2);
  for (const int16_t bias :
       {int16_t{-15808}, int16_t{-3000}, int16_t{-64}, int16_t{0}, int16_t{15936}}) {
    for (const int num_tokens : kTokens) {
      if (!check.Begin(fmt::format("bias {} tokens {}", bias, num_tokens))) continue;
      const auto tokens = static_cast<size_t>(num_tokens);
      uint8_t* codes = codes_buffer.Place(tokens, 0);
      for (size_t t = 0; t < tokens; ++t) codes[t] = static_cast<uint8_t>(t * 255 / (tokens - 1));
      auto* scales = scales_buffer.PlaceArray<uint16_t>(tokens);
      std::vector<uint16_t> expected(tokens);
      ExpandScales({codes, bias, num_tokens, expected.data()});
      check.row().expand_scales({codes, bias, num_tokens, scales});
      if (!check.ExpectGuards(scales_buffer, "scales")) return;
      check.ExpectBytes(scales, expected.data(), 2 * tokens, "scales");
    }
  }
}

// Any order of n products and sums, and the last product: (n + 3) u sum |q code| scale.
void CheckMeanDot(RowCheck& check) {
  GuardedBuffer q_buffer(size_t{kMaxTileRows} * (kMaxHeadDim + 8) * 4), codes_buffer(kMaxHeadDim),
      out_buffer(kMaxTileRows * 4);
  for (const int head_dim : kHeadDims) {
    for (const int num_rows : {1, 3, 4, 32}) {
      for (const int mean_bits : {8, 4}) {
        if (!check.Begin(fmt::format("head_dim {} rows {} bits {}", head_dim, num_rows, mean_bits)))
          continue;
        Rng rng(check.case_seed());
        const size_t stride = static_cast<size_t>(head_dim) + static_cast<size_t>(rng.Below(2) * 5);
        float* q = q_buffer.PlaceArray<float>(stride * static_cast<size_t>(num_rows - 1) +
                                              static_cast<size_t>(head_dim));
        for (int r = 0; r < num_rows; ++r) {
          for (int c = 0; c < head_dim; ++c) {
            q[static_cast<size_t>(r) * stride + static_cast<size_t>(c)] =
                static_cast<float>(rng.Gaussian());
          }
        }
        uint8_t* codes = codes_buffer.Place(
            static_cast<size_t>(head_dim) * static_cast<size_t>(mean_bits) / 8, 0);
        for (int i = 0; i < head_dim * mean_bits / 8; ++i) {
          codes[i] = static_cast<uint8_t>(rng.Next());
        }
        float* out = out_buffer.PlaceArray<float>(static_cast<size_t>(num_rows));
        const float scale = 0.03f;
        check.row().mean_dot({q, stride, num_rows, head_dim, mean_bits, codes, scale, out});
        if (!check.ExpectGuards(out_buffer, "out")) return;
        for (int r = 0; r < num_rows; ++r) {
          double sum = 0, magnitude = 0;
          for (int c = 0; c < head_dim; ++c) {
            const double product =
                static_cast<double>(q[static_cast<size_t>(r) * stride + static_cast<size_t>(c)]) *
                MeanCode(codes, mean_bits, c);
            sum += product;
            magnitude += std::fabs(product);
          }
          const auto factor = static_cast<double>(scale);
          check.ExpectNear(static_cast<double>(out[r]), sum * factor,
                           (head_dim + 3) * kRoundoff * magnitude * factor,
                           fmt::format("row {}", r));
        }
      }
    }
  }
}

}  // namespace turboquant::check
