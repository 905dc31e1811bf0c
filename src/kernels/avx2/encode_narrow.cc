// Encoding of the narrow formats: codes equal codec/tile.h bit for bit. Rows become bytes, four
// tokens or channels of 16 lanes become the 16 words of a plane, and planes are packed into the
// lines of a unit.
#include "kernels/avx2/kernels.h"
#include "kernels/avx2/narrow_levels.h"

namespace turboquant::avx2 {
namespace {

constexpr int kMaxPlanes = 8;
using PlaneWords = uint32_t[kLanes];  // a plane: 4 codes of a byte per lane

// Codes of one row to bytes; returns the number of outermost ones.
template <KvCacheDtype kDtype>
int CodeRow(const float* row, int n, float inverse, uint8_t* bytes) {
  constexpr int kHalf = NarrowFormatOf(kDtype).half;
  const __m256 factor = _mm256_set1_ps(inverse);
  __m256i ends = _mm256_setzero_si256();
  for (int c = 0; c < n; c += 8) {
    __m256 p = _mm256_mul_ps(_mm256_loadu_ps(row + c), factor);
    p = _mm256_and_ps(p, _mm256_cmp_ps(p, p, _CMP_ORD_Q));
    const __m256i index = NarrowLevels<kDtype>::Index(Abs(p));
    const __m256i negative = _mm256_castps_si256(_mm256_cmp_ps(p, _mm256_setzero_ps(), _CMP_LT_OQ));
    // half + index, or half - 1 - index = half + ~index
    const __m256i code =
        _mm256_add_epi32(_mm256_set1_epi32(kHalf), _mm256_xor_si256(index, negative));
    ends = _mm256_sub_epi32(ends, _mm256_cmpeq_epi32(index, _mm256_set1_epi32(kHalf - 1)));
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(bytes + c), _mm_packus_epi16(words, words));
  }
  return HorizontalSum(ends);
}

// Planes of a unit to its lines.
template <KvCacheDtype kDtype>
void PackUnit(const PlaneWords* planes, uint8_t* unit) {
  constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  constexpr int kPerLine = 8 / kFormat.low_bits;
  constexpr uint32_t kLowMask = 0x01010101u * ((1u << kFormat.low_bits) - 1);
  constexpr uint32_t kHighMask = 0x01010101u * ((1u << kFormat.high_bits) - 1);
  uint32_t lines[kFormat.num_lines][kLanes] = {};
  for (int p = 0; p < kFormat.num_planes; ++p) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint32_t word = planes[p][lane];
      lines[p / kPerLine][lane] |= (word & kLowMask) << kFormat.low_bits * (p % kPerLine);
      if constexpr (kFormat.high_bits > 0) {
        lines[kFormat.num_low][lane] |= (word >> kFormat.low_bits & kHighMask)
                                        << kFormat.high_bits * p;
      }
    }
  }
  __builtin_memcpy(unit, lines, sizeof(lines));
}

// Codes of kRows tokens from `first` on; returns the number of outermost ones.
template <KvCacheDtype kDtype, int kRows>
int64_t CodeRows(const EncodeArgs& args, int first, uint8_t (&bytes)[kRows][kMaxHeadDim]) {
  const int head_dim = args.shape.head_dim;
  int64_t ends = 0;
  for (int t = 0; t < kRows; ++t) {
    const float* row = args.x + Size(first + t) * Size(head_dim);
    const float inverse = Inverse(FromF16(args.scales[first + t]));
    ends += CodeRow<kDtype>(row, head_dim, inverse, bytes[t]);
  }
  return ends;
}

template <KvCacheDtype kDtype>
int64_t EncodeKey(const EncodeArgs& args) {
  constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  constexpr int kChannels = kFormat.CodesPerLane();
  const int head_dim = args.shape.head_dim;
  uint8_t bytes[kLanes][kMaxHeadDim];
  PlaneWords planes[kMaxPlanes];
  uint8_t* unit = args.lines;
  int64_t ends = 0;
  for (int first = 0; first < args.shape.num_tokens; first += kLanes) {
    ends += CodeRows<kDtype>(args, first, bytes);
    for (int channel = 0; channel < head_dim; channel += kChannels) {
      for (int p = 0; p < kFormat.num_planes; ++p) {
        for (int t = 0; t < kLanes; ++t) {
          __builtin_memcpy(&planes[p][t], &bytes[t][channel + 4 * p], 4);
        }
      }
      PackUnit<kDtype>(planes, unit);
      unit += kFormat.num_lines * kLineBytes;
    }
  }
  return ends;
}

template <KvCacheDtype kDtype>
int64_t EncodeValue(const EncodeArgs& args) {
  constexpr NarrowFormat kFormat = NarrowFormatOf(kDtype);
  constexpr int kTokens = kFormat.CodesPerLane();
  const int head_dim = args.shape.head_dim;
  uint8_t bytes[kTokens][kMaxHeadDim];
  PlaneWords planes[kMaxPlanes];
  uint8_t* unit = args.lines;
  int64_t ends = 0;
  for (int first = 0; first < args.shape.num_tokens; first += kTokens) {
    ends += CodeRows<kDtype>(args, first, bytes);
    for (int channel = 0; channel < head_dim; channel += kLanes) {
      for (int p = 0; p < kFormat.num_planes; ++p) {
        const uint8_t(*four)[kMaxHeadDim] = bytes + 4 * p;
        for (int lane = 0; lane < kLanes; ++lane) {
          const int c = channel + lane;
          planes[p][lane] = four[0][c] | static_cast<uint32_t>(four[1][c]) << 8 |
                            static_cast<uint32_t>(four[2][c]) << 16 |
                            static_cast<uint32_t>(four[3][c]) << 24;
        }
      }
      PackUnit<kDtype>(planes, unit);
      unit += kFormat.num_lines * kLineBytes;
    }
  }
  return ends;
}

template <KvCacheDtype kDtype>
void Encode(const EncodeArgs& args) {
  const int64_t ends =
      args.shape.side == KvSide::kKey ? EncodeKey<kDtype>(args) : EncodeValue<kDtype>(args);
  if (args.end_codes != nullptr) *args.end_codes += ends;
}

}  // namespace

void EncodeNarrow(const EncodeArgs& args) {
  const KvCacheDtype dtype = args.spec.dtype;
  if (dtype == KvCacheDtype::kInt6) return Encode<KvCacheDtype::kInt6>(args);
  if (dtype == KvCacheDtype::kInt5) return Encode<KvCacheDtype::kInt5>(args);
  if (dtype == KvCacheDtype::kInt4) return Encode<KvCacheDtype::kInt4>(args);
  if (dtype == KvCacheDtype::kInt3) return Encode<KvCacheDtype::kInt3>(args);
  Encode<KvCacheDtype::kInt2>(args);
}

}  // namespace turboquant::avx2
