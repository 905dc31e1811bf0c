#include "check.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "base/half.h"
#include "codec/narrow.h"

namespace turboquant::check {
namespace {

constexpr std::array kHeadDims = {64, 80, 96, 112, 128, 192, 256, 16, 512};
constexpr std::array kTokens = {16, 32, 48, 64};
constexpr std::array kRows = {1, 2, 3, 4, 5, 7, 8, 9, 16, 32};
constexpr std::array kGroupSizes = {16, 32, 64, 128};
constexpr size_t kMaxStride = 256;

bool SameFeatures(const CpuFeatures& a, const CpuFeatures& b) {
  return a.Contains(b) && b.Contains(a);
}

// Scale groups of a head: the whole head without and with scales in the block, then groups.
std::vector<std::pair<int, bool>> GroupChoices(KvCacheDtype dtype, int head_dim) {
  std::vector<std::pair<int, bool>> choices;
  if (dtype != KvCacheDtype::kInt4Asym) choices.emplace_back(head_dim, false);
  if (CodeBits(dtype) > 8) return choices;
  choices.emplace_back(head_dim, true);
  if (IsNarrow(dtype)) return choices;
  for (int group : kGroupSizes) {
    if (group < head_dim && head_dim % group == 0) choices.emplace_back(group, true);
  }
  return choices;
}

}  // namespace

bool RowCheck::Begin(const std::string& shape) {
  ++case_index_;
  if (failed_) return false;
  constexpr uint64_t kQuickStep = 10;
  if (options_.quick && Rng(case_seed()).Next() % kQuickStep != 0) return false;
  ++num_cases_;
  shape_ = shape;
  SetCrashContext(
      fmt::format("{} case {} seed {}: {}", row_.name, case_index_, options_.seed, shape));
  return true;
}

uint64_t RowCheck::case_seed() const {
  return options_.seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(case_index_);
}

void RowCheck::Fail(const std::string& what) {
  if (failed_) return;
  failed_ = true;
  fmt::print(stderr, "FAILED: {} case {} seed {}: {}: {}\n", row_.name, case_index_, options_.seed,
             shape_, what);
}

bool RowCheck::ExpectNear(double actual, double expected, double bound, const std::string& where) {
  if (std::isnan(expected) && std::isnan(actual)) return true;
  if (actual == expected) return true;
  if (std::isfinite(actual) && std::fabs(actual - expected) <= bound) return true;
  Fail(fmt::format("{}: expected {:.9g}, is {:.9g}, difference {:.3g}, bound {:.3g}", where,
                   expected, actual, std::fabs(actual - expected), bound));
  return false;
}

bool RowCheck::ExpectBytes(const void* actual, const void* expected, size_t bytes,
                           const std::string& where) {
  const auto* a = static_cast<const uint8_t*>(actual);
  const auto* e = static_cast<const uint8_t*>(expected);
  for (size_t i = 0; i < bytes; ++i) {
    if (a[i] == e[i]) continue;
    Fail(fmt::format("{}: byte {} of {}: expected {:#04x}, is {:#04x}", where, i, bytes, e[i],
                     a[i]));
    return false;
  }
  return true;
}

bool RowCheck::ExpectGuards(const GuardedBuffer& buffer, const char* name) {
  if (buffer.GuardsIntact()) return true;
  Fail(fmt::format("wrote outside of {}", name));
  return false;
}

std::string TileCase::ToString() const {
  return fmt::format(
      "head_dim {} tokens {} rows {} group_size {} scales {} prefetch {} codes {} rows {}",
      head_dim, num_tokens, num_rows, group_size, scales, prefetch, check::Name(codes),
      check::Name(rows));
}

bool HasWholeUnits(KvCacheDtype dtype, const TileShape& shape) {
  return turboquant::HasWholeUnits(dtype,
                                   shape.side == KvSide::kKey ? shape.head_dim : shape.num_tokens);
}

void ForTileCases(KvCacheDtype dtype, KvSide side,
                  const std::function<void(const TileCase&)>& body) {
  size_t kind = 0;
  for (int head_dim : kHeadDims) {
    for (int tokens : kTokens) {
      if (!HasWholeUnits(dtype, {side, tokens, head_dim})) continue;
      for (int rows : kRows) {
        for (const auto& [group_size, scales] : GroupChoices(dtype, head_dim)) {
          ++kind;
          const DataKind codes = kAllDataKinds[kind % kAllDataKinds.size()];
          const DataKind row_kind =
              kAllDataKinds[kind / kAllDataKinds.size() % kAllDataKinds.size()];
          body({dtype, head_dim, tokens, rows, group_size, scales, kind % 3 == 0, codes, row_kind});
        }
      }
    }
  }
}

double TileScales::Scale(int group, int token) const {
  return scales == nullptr ? 1 : static_cast<double>(HalfToFloat(scales[group * stride + token]));
}

double TileScales::ZeroPoint(int group, int token) const {
  return zero_points == nullptr
             ? 0
             : static_cast<double>(HalfToFloat(zero_points[group * stride + token]));
}

ScaleBuffers::ScaleBuffers()
    : scales_(2 * kMaxGroups * kMaxStride), zero_points_(2 * kMaxGroups * kMaxStride) {}

TileScales ScaleBuffers::Fill(const TileCase& c, bool one_power_of_two, Rng& rng) {
  TileScales tile;
  tile.stride = std::array{c.num_tokens, 64, 256}[static_cast<size_t>(rng.Below(3))];
  if (!c.scales) return tile;
  const int groups = c.head_dim / c.group_size;
  const size_t count = static_cast<size_t>((groups - 1) * tile.stride + c.num_tokens);
  auto* scales = scales_.PlaceArray<uint16_t>(count);
  auto* zero_points = zero_points_.PlaceArray<uint16_t>(count);
  const int odd_kind = rng.Below(6);  // now and then: all zero, all subnormal
  const double power_of_two = std::exp2(rng.Below(8) - 6);
  for (size_t i = 0; i < count; ++i) {
    double scale = one_power_of_two ? power_of_two : std::exp2(rng.Uniform() * 8 - 6);
    if (!one_power_of_two && odd_kind == 0) scale = 0;
    if (!one_power_of_two && odd_kind == 1) scale = 0x1p-22;
    scales[i] = FloatToHalf(static_cast<float>(scale));
    zero_points[i] = FloatToHalf(one_power_of_two ? 0.0f : static_cast<float>(rng.Uniform() * 15));
  }
  tile.scales = scales;
  if (c.dtype == KvCacheDtype::kInt4Asym) tile.zero_points = zero_points;
  return tile;
}

const KernelRow& PartnerRow(const KernelRow& row) {
  const KernelOp wanted = row.op == KernelOp::kQk ? KernelOp::kPrepareQ : KernelOp::kQk;
  for (const KernelRow& other : AllKernelRows()) {
    if (other.op == wanted && other.dtype == row.dtype && other.isa == row.isa &&
        SameFeatures(other.requires_features, row.requires_features)) {
      return other;
    }
  }
  CHECK_EQ(row.name, "a row with a partner");
  return row;
}

}  // namespace turboquant::check
