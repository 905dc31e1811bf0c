#include "data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/half.h"
#include "codec/fp8.h"
#include "codec/narrow.h"

namespace turboquant::check {
namespace {

// What a value of 1 stands for: the largest code.
double Largest(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kF32:
    case KvCacheDtype::kF16:
    case KvCacheDtype::kBf16:
      return 1;
    case KvCacheDtype::kInt8:
      return 127;
    case KvCacheDtype::kFp8E4m3:
      return static_cast<double>(kMaxFp8E4m3);
    case KvCacheDtype::kFp8E5m2:
      return static_cast<double>(kMaxFp8E5m2);
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
      return NarrowFormatOf(dtype).Level((1 << CodeBits(dtype)) - 1);
    case KvCacheDtype::kInt4Sym:
      return 7;
    case KvCacheDtype::kInt4Asym:
      return 7.5;  // around 7.5
  }
  return 0;
}

// Stored bits of a value of [-1, 1].
uint32_t StoredBits(KvCacheDtype dtype, KvSide side, double value) {
  value *= Largest(dtype);
  const int code = static_cast<int>(std::rint(value));
  switch (dtype) {
    case KvCacheDtype::kF32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    case KvCacheDtype::kF16:
      return FloatToHalf(static_cast<float>(value));
    case KvCacheDtype::kBf16:
      return FloatToBf16(static_cast<float>(value));
    case KvCacheDtype::kInt8:
      return static_cast<uint8_t>(code + (side == KvSide::kKey ? 128 : 0));
    case KvCacheDtype::kFp8E4m3:
      return FloatToFp8E4m3(static_cast<float>(value));
    case KvCacheDtype::kFp8E5m2:
      return FloatToFp8E5m2(static_cast<float>(value));
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
      return static_cast<uint32_t>(
          QuantizeNarrow(NarrowFormatOf(dtype), static_cast<float>(value), 1.0f));
    case KvCacheDtype::kInt4Sym:
      return static_cast<uint32_t>(code + 8);
    case KvCacheDtype::kInt4Asym:
      return static_cast<uint32_t>(std::rint(7.5 + value));
  }
  return 0;
}

// Brings 1e-40 to where the format's own subnormals are. Integers have none and get -1, 0 and 1.
double DenormalScale(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kF32:
    case KvCacheDtype::kBf16:
      return 1;
    case KvCacheDtype::kF16:
      return 1e34;
    case KvCacheDtype::kFp8E4m3:
      return 1e35;
    case KvCacheDtype::kFp8E5m2:
      return 1e31;
    case KvCacheDtype::kInt8:
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
    case KvCacheDtype::kInt4Sym:
    case KvCacheDtype::kInt4Asym:
      return 1 / Largest(dtype) * 1e40;
  }
  return 1;
}

}  // namespace

uint64_t Rng::Next() {
  uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double Rng::Gaussian() {
  const double radius = std::sqrt(-2 * std::log(1 - Uniform()));
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

std::string_view Name(DataKind kind) {
  switch (kind) {
    case DataKind::kGaussian:
      return "gaussian";
    case DataKind::kConstant:
      return "constant";
    case DataKind::kZero:
      return "zero";
    case DataKind::kEnds:
      return "ends";
    case DataKind::kAllMax:
      return "all_max";
    case DataKind::kDenormal:
      return "denormal";
    case DataKind::kHotChannel:
      return "hot_channel";
    case DataKind::kHeavyTails:
      return "heavy_tails";
  }
  return "";
}

double Draw(DataKind kind, int channel, Rng& rng) {
  switch (kind) {
    case DataKind::kGaussian:
      return std::clamp(rng.Gaussian() / 4, -1.0, 1.0);
    case DataKind::kConstant:
      return 0.37;
    case DataKind::kZero:
      return 0;
    case DataKind::kEnds:
      return rng.Below(2) == 0 ? -1 : 1;
    case DataKind::kAllMax:
      return 1;
    case DataKind::kDenormal:
      return rng.Gaussian() * 1e-40;
    case DataKind::kHotChannel:
      return std::clamp(rng.Gaussian() / 4, -1.0, 1.0) * (channel == 5 ? 1 : 0.01);
    case DataKind::kHeavyTails:
      return std::clamp(0.01 / (rng.Uniform() * 2 - 1 + 1e-9), -1.0, 1.0);
  }
  return 0;
}

void FillCodes(KvCacheDtype dtype, const TileShape& shape, DataKind kind, Rng& rng,
               uint8_t* lines) {
  const double scale = kind == DataKind::kDenormal ? DenormalScale(dtype) : 1;
  for (int t = 0; t < shape.num_tokens; ++t) {
    for (int c = 0; c < shape.head_dim; ++c) {
      const double value = std::clamp(Draw(kind, c, rng) * scale, -1.0, 1.0);
      StoreCode(lines, dtype, AddressOf(dtype, shape, t, c), StoredBits(dtype, shape.side, value));
    }
  }
}

double ReadCode(KvCacheDtype dtype, const TileShape& shape, const uint8_t* lines, int token,
                int channel) {
  const uint32_t bits = LoadCode(lines, dtype, AddressOf(dtype, shape, token, channel));
  switch (dtype) {
    case KvCacheDtype::kF32:
      return static_cast<double>(std::bit_cast<float>(bits));
    case KvCacheDtype::kF16:
      return static_cast<double>(HalfToFloat(static_cast<uint16_t>(bits)));
    case KvCacheDtype::kBf16:
      return static_cast<double>(Bf16ToFloat(static_cast<uint16_t>(bits)));
    case KvCacheDtype::kInt8:
      return shape.side == KvSide::kKey ? static_cast<int>(bits) - 128 : static_cast<int8_t>(bits);
    case KvCacheDtype::kFp8E4m3:
      return static_cast<double>(Fp8E4m3ToFloat(static_cast<uint8_t>(bits)));
    case KvCacheDtype::kFp8E5m2:
      return static_cast<double>(Fp8E5m2ToFloat(static_cast<uint8_t>(bits)));
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
      return NarrowFormatOf(dtype).Level(static_cast<int>(bits));
    case KvCacheDtype::kInt4Sym:
      return static_cast<int>(bits) - 8;
    case KvCacheDtype::kInt4Asym:
      return static_cast<int>(bits);
  }
  return 0;
}

void WriteCode(KvCacheDtype dtype, const TileShape& shape, uint8_t* lines, int token, int channel,
               double code) {
  const double middle = dtype == KvCacheDtype::kInt4Asym ? 7.5 : 0;
  const double value = (code - middle) / Largest(dtype);
  StoreCode(lines, dtype, AddressOf(dtype, shape, token, channel),
            StoredBits(dtype, shape.side, value));
}

}  // namespace turboquant::check
