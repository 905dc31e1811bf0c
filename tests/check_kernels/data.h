// Seeded random data of the kinds that break kernels, and tiles of codes read one by one through
// codec's AddressOf, independently of how any kernel walks the lines.
#ifndef TURBOQUANT_TESTS_CHECK_KERNELS_DATA_H_
#define TURBOQUANT_TESTS_CHECK_KERNELS_DATA_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "codec/tile.h"

namespace turboquant::check {

// splitmix64: small, seedable, the same everywhere.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  uint64_t Next();
  int Below(int n) { return static_cast<int>(Next() % static_cast<uint64_t>(n)); }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }  // [0, 1)
  double Gaussian();

 private:
  uint64_t state_;
};

enum class DataKind {
  kGaussian,
  kConstant,
  kZero,
  kEnds,    // +1 or -1
  kAllMax,  // +1: the largest sums
  kDenormal,
  kHotChannel,  // one channel 100 times larger than the rest
  kHeavyTails,
};
inline constexpr std::array kAllDataKinds = {
    DataKind::kGaussian, DataKind::kConstant, DataKind::kZero,       DataKind::kEnds,
    DataKind::kAllMax,   DataKind::kDenormal, DataKind::kHotChannel, DataKind::kHeavyTails};
std::string_view Name(DataKind kind);

// A value of [-1, 1]; kDenormal: below 1e-38 in magnitude.
double Draw(DataKind kind, int channel, Rng& rng);

// Fills the lines of a tile with codes of that kind. All stored values are finite.
void FillCodes(KvCacheDtype dtype, const TileShape& shape, DataKind kind, Rng& rng, uint8_t* lines);

// Code before scales: integers as they are (int8 -127..127, int4_sym -7..7, int4_asym 0..15; of
// narrow formats the level), floats their value.
double ReadCode(KvCacheDtype dtype, const TileShape& shape, const uint8_t* lines, int token,
                int channel);
// And back: sets one code, which must be one that the format has.
void WriteCode(KvCacheDtype dtype, const TileShape& shape, uint8_t* lines, int token, int channel,
               double code);

}  // namespace turboquant::check

#endif  // TURBOQUANT_TESTS_CHECK_KERNELS_DATA_H_
