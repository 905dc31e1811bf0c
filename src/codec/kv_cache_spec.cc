#include "codec/kv_cache_spec.h"

#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "codec/narrow.h"

namespace turboquant {
namespace {

constexpr int kMaxKvHeads = 4096;
constexpr std::array kBlockSizes = {16, 32, 64, 128, 256};
constexpr std::array kGroupSizes = {32, 64, 128};
constexpr std::array kAllGranularities = {
    ScaleGranularity::kNone,           ScaleGranularity::kPerTensor,
    ScaleGranularity::kPerHead,        ScaleGranularity::kPerChannel,
    ScaleGranularity::kPerBlock,       ScaleGranularity::kPerTokenHead,
    ScaleGranularity::kPerTokenHeadU8, ScaleGranularity::kPerGroup};

template <size_t n>
bool Contains(const std::array<int, n>& values, int value) {
  for (int candidate : values) {
    if (candidate == value) return true;
  }
  return false;
}

std::string_view Name(KvSide side) { return side == KvSide::kKey ? "K" : "V"; }

bool HasScales(KvCacheDtype dtype) { return CodeBits(dtype) <= 8; }

bool Supports(KvCacheDtype dtype, ScaleGranularity granularity) {
  switch (dtype) {
    case KvCacheDtype::kF32:
    case KvCacheDtype::kF16:
    case KvCacheDtype::kBf16:
      return granularity == ScaleGranularity::kNone;
    case KvCacheDtype::kFp8E4m3:
    case KvCacheDtype::kFp8E5m2:
      return granularity != ScaleGranularity::kPerTokenHeadU8;
    case KvCacheDtype::kInt8:
      return granularity != ScaleGranularity::kNone;
    case KvCacheDtype::kInt4Sym:
      return granularity != ScaleGranularity::kNone &&
             granularity != ScaleGranularity::kPerTokenHeadU8;
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
      return granularity == ScaleGranularity::kPerTokenHeadU8;
    case KvCacheDtype::kInt4Asym:
      return granularity == ScaleGranularity::kPerTokenHead ||
             granularity == ScaleGranularity::kPerGroup;
  }
  CHECK(false);
  return false;
}

constexpr std::string_view kFixedSuffix = ":fixed";

std::string GranularityText(const KvSideSpec& side) {
  if (side.granularity == ScaleGranularity::kPerGroup) {
    return fmt::format("per_group:{}", side.group_size);
  }
  if (side.fixed) return fmt::format("{}{}", Name(side.granularity), kFixedSuffix);
  return std::string(Name(side.granularity));
}

// "per_tensor, per_head, ..., per_group:32|64|128": what a format can have.
std::string SupportedGranularities(KvCacheDtype dtype) {
  std::string list;
  for (ScaleGranularity granularity : kAllGranularities) {
    if (!Supports(dtype, granularity)) continue;
    if (!list.empty()) list += ", ";
    list += Name(granularity);
    if (granularity == ScaleGranularity::kPerGroup) list += ":32|64|128";
    if (IsStatic(granularity)) list += "[:fixed]";
  }
  return list;
}

Status ValidateTransform(const KvSideSpec& side) {
  if (side.transform == KvTransform::kNone) return {};
  if (!HasScales(side.dtype)) {
    return Fail(ErrorCode::kUnsupported, "{} is not rotated: formats of 8 bits and fewer are",
                Name(side.dtype));
  }
  if (side.granularity == ScaleGranularity::kPerChannel) {
    return Fail(ErrorCode::kUnsupported,
                "per_channel scales belong to the model's own channels: they take the transform "
                "none");
  }
  if (IsCentered(side.transform) && IsStatic(side.granularity)) {
    return Fail(ErrorCode::kUnsupported,
                "{} scales are made for keys with their mean: they take the transform rotated or "
                "none",
                Name(side.granularity));
  }
  return {};
}

// What can be said about a side without knowing the head size.
Status ValidateSide(const KvSideSpec& side) {
  TQ_RETURN_IF_ERROR(ValidateTransform(side));
  if (!Supports(side.dtype, side.granularity)) {
    return Fail(ErrorCode::kUnsupported, "{} has no scale granularity {}: it takes {}",
                Name(side.dtype), Name(side.granularity), SupportedGranularities(side.dtype));
  }
  if (side.fixed && !IsStatic(side.granularity)) {
    return Fail(ErrorCode::kInvalidArgument, "fixed goes with static scales only, not with {}",
                Name(side.granularity));
  }
  if (side.granularity != ScaleGranularity::kPerGroup) {
    if (side.group_size == 0) return {};
    return Fail(ErrorCode::kInvalidArgument,
                "a group size ({}) goes with per_group only, not with {}", side.group_size,
                Name(side.granularity));
  }
  if (!Contains(kGroupSizes, side.group_size)) {
    return Fail(ErrorCode::kUnsupported,
                "scale groups of {} channels are not supported: 32, 64 or 128 are",
                side.group_size);
  }
  return {};
}

Result<KvSideSpec> ParseGranularity(std::string_view text, KvCacheDtype dtype) {
  KvSideSpec side{.dtype = dtype, .granularity = DefaultGranularity(dtype)};
  if (text.empty()) return side;
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  bool known = false;
  for (ScaleGranularity granularity : kAllGranularities) {
    if (name != Name(granularity)) continue;
    side.granularity = granularity;
    known = true;
  }
  if (known && IsStatic(side.granularity) && text.substr(name.size()) == kFixedSuffix) {
    side.fixed = true;
    return side;
  }
  const bool wants_size = side.granularity == ScaleGranularity::kPerGroup;
  if (known && wants_size == (colon != std::string_view::npos)) {
    if (!wants_size) return side;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, side.group_size);
    if (error == std::errc{} && stop == end) return side;
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown scale granularity '{}': {} takes {}", text,
              Name(dtype), SupportedGranularities(dtype));
}

Result<KvTransform> ParseTransform(std::string_view text, KvSide side, const KvSideSpec& spec) {
  if (text.empty()) return DefaultTransform(side, spec.dtype, spec.granularity);
  for (const KvTransform transform : {KvTransform::kNone, KvTransform::kRotated,
                                      KvTransform::kCentered, KvTransform::kBalanced}) {
    if (text == Name(transform)) return transform;
  }
  return Fail(ErrorCode::kInvalidArgument,
              "unknown transform '{}': want none, rotated, or (K only) centered or balanced", text);
}

// "a/b" -> {a, b}; "a" -> {a, a}.
Result<std::pair<std::string_view, std::string_view>> SplitKv(std::string_view text,
                                                              std::string_view what) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return std::pair{text, text};
  const std::pair parts{text.substr(0, slash), text.substr(slash + 1)};
  if (parts.first.empty() || parts.second.empty() ||
      parts.second.find('/') != std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, "{} '{}': want one for both, or K/V as in int8/int4",
                what, text);
  }
  return parts;
}

Result<KvCacheDtype> ParseDtypeWithNotes(std::string_view text, std::vector<std::string>* notes) {
  std::string note;
  TQ_ASSIGN_OR_RETURN(const KvCacheDtype dtype, ParseKvCacheDtype(text, &note));
  if (notes != nullptr && !note.empty() && (notes->empty() || notes->back() != note)) {
    notes->push_back(note);
  }
  return dtype;
}

size_t NumStaticScales(const KvCacheSpec& spec, ScaleGranularity granularity) {
  switch (granularity) {
    case ScaleGranularity::kPerTensor:
      return 1;
    case ScaleGranularity::kPerHead:
      return static_cast<size_t>(spec.num_kv_heads);
    case ScaleGranularity::kPerChannel:
      return static_cast<size_t>(spec.num_kv_heads) * static_cast<size_t>(spec.head_dim);
    case ScaleGranularity::kNone:
    case ScaleGranularity::kPerBlock:
    case ScaleGranularity::kPerTokenHead:
    case ScaleGranularity::kPerTokenHeadU8:
    case ScaleGranularity::kPerGroup:
      return 0;
  }
  CHECK(false);
  return 0;
}

// what: "static K scale", for messages
Status ValidateFactors(std::span<const float> factors, std::string_view what) {
  for (size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] >= 0x1p-126f && factors[i] <= 0x1p126f) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "{} {} is {}: want a positive number within 2^-126 and 2^126", what, i, factors[i]);
  }
  return {};
}

Status ValidateScalesOfSide(const KvCacheSpec& spec, KvSide side, std::span<const float> scales) {
  const ScaleGranularity granularity = (side == KvSide::kKey ? spec.k : spec.v).granularity;
  const size_t wanted = NumStaticScales(spec, granularity);
  if (scales.size() != wanted) {
    return Fail(ErrorCode::kInvalidArgument, "{} static {} scales given, {} needs {}",
                scales.size(), Name(side), Name(granularity), wanted);
  }
  return ValidateFactors(scales, fmt::format("static {} scale", Name(side)));
}

Status ValidateBalance(const KvCacheSpec& spec, std::span<const float> factors) {
  const size_t wanted = spec.k.transform == KvTransform::kBalanced
                            ? NumStaticScales(spec, ScaleGranularity::kPerChannel)
                            : 0;
  if (factors.size() != wanted) {
    return Fail(ErrorCode::kInvalidArgument, "{} factors of K's channels given, {} needs {}",
                factors.size(), Name(spec.k.transform), wanted);
  }
  return ValidateFactors(factors, "factor of K channel");
}

// Narrow codes are packed in units along channels of K and tokens of V.
Status ValidateUnits(KvCacheDtype dtype, std::string_view what, std::string_view of, int length) {
  if (HasWholeUnits(dtype, length)) return {};
  return Fail(ErrorCode::kUnsupported, "{} wants {} of a multiple of {} {}, not {}",
              turboquant::Name(dtype), what, NarrowFormatOf(dtype).CodesPerLane(), of, length);
}

}  // namespace

Status KvCacheSpec::Validate() const {
  if (num_kv_heads < 1 || num_kv_heads > kMaxKvHeads) {
    return Fail(ErrorCode::kInvalidArgument, "{} KV heads: want 1 to {}", num_kv_heads,
                kMaxKvHeads);
  }
  if (head_dim < 16 || head_dim > kMaxHeadDimOfSpec || head_dim % 16 != 0) {
    return Fail(ErrorCode::kUnsupported,
                "heads of {} channels are not supported: multiples of 16 up to {} are", head_dim,
                kMaxHeadDimOfSpec);
  }
  if (!Contains(kBlockSizes, block_size)) {
    return Fail(ErrorCode::kUnsupported,
                "blocks of {} tokens are not supported: 16, 32, 64, 128 or 256 are", block_size);
  }
  for (const KvSideSpec* side : {&k, &v}) {
    TQ_RETURN_IF_ERROR(ValidateSide(*side));
    if (side->granularity == ScaleGranularity::kPerGroup && head_dim % side->group_size != 0) {
      return Fail(ErrorCode::kUnsupported,
                  "scale groups of {} channels do not divide the head of {}", side->group_size,
                  head_dim);
    }
  }
  if (v.HasMean()) {
    return Fail(ErrorCode::kUnsupported, "{} is a transform of K: V takes rotated or none",
                Name(v.transform));
  }
  TQ_RETURN_IF_ERROR(ValidateUnits(k.dtype, "heads", "channels", head_dim));
  TQ_RETURN_IF_ERROR(ValidateUnits(v.dtype, "blocks", "tokens", block_size));
  return {};
}

size_t KvCacheSpec::BytesPerBlock() const {
  return static_cast<size_t>(num_kv_heads) * KvBlockLayout(*this).bytes_per_head;
}

double KvCacheSpec::BitsPerValue() const {
  const double values = 2.0 * num_kv_heads * head_dim * block_size;
  return 8.0 * static_cast<double>(BytesPerBlock()) / values;
}

std::string KvCacheSpec::ToString() const {
  const std::string k_granularity = GranularityText(k), v_granularity = GranularityText(v);
  std::string text = fmt::format(
      "{}/{} {}", turboquant::Name(k.dtype), turboquant::Name(v.dtype),
      k_granularity == v_granularity ? k_granularity : k_granularity + "/" + v_granularity);
  if (k.transform == v.transform) {
    if (k.transform != KvTransform::kNone) text += fmt::format(" {}", Name(k.transform));
  } else {
    text += fmt::format(" {}/{}", Name(k.transform), Name(v.transform));
  }
  return text;
}

KvTransform DefaultTransform(KvSide side, KvCacheDtype dtype, ScaleGranularity granularity) {
  if (side == KvSide::kKey && granularity == ScaleGranularity::kPerTokenHeadU8) {
    return KvTransform::kCentered;
  }
  const bool rotated = HasScales(dtype) && granularity != ScaleGranularity::kPerChannel;
  return rotated ? KvTransform::kRotated : KvTransform::kNone;
}

ScaleGranularity DefaultGranularity(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kF32:
    case KvCacheDtype::kF16:
    case KvCacheDtype::kBf16:
    case KvCacheDtype::kFp8E4m3:
    case KvCacheDtype::kFp8E5m2:
      return ScaleGranularity::kNone;
    case KvCacheDtype::kInt8:
    case KvCacheDtype::kInt6:
    case KvCacheDtype::kInt5:
    case KvCacheDtype::kInt4:
    case KvCacheDtype::kInt3:
    case KvCacheDtype::kInt2:
      return ScaleGranularity::kPerTokenHeadU8;
    case KvCacheDtype::kInt4Sym:
    case KvCacheDtype::kInt4Asym:
      return ScaleGranularity::kPerTokenHead;
  }
  CHECK(false);
  return ScaleGranularity::kNone;
}

Result<KvSidePair> ParseKvFormat(std::string_view dtype, std::string_view granularity,
                                 std::string_view transform, std::vector<std::string>* notes) {
  TQ_ASSIGN_OR_RETURN(const auto dtypes, SplitKv(dtype, "KV cache format"));
  TQ_ASSIGN_OR_RETURN(auto granularities, SplitKv(granularity, "scale granularity"));
  TQ_ASSIGN_OR_RETURN(auto transforms, SplitKv(transform, "transform"));
  TQ_ASSIGN_OR_RETURN(const KvCacheDtype k, ParseDtypeWithNotes(dtypes.first, notes));
  TQ_ASSIGN_OR_RETURN(const KvCacheDtype v, ParseDtypeWithNotes(dtypes.second, notes));
  // One granularity or transform for both is meant for the sides that take one at all.
  const bool only_v = !HasScales(k) && HasScales(v), only_k = HasScales(k) && !HasScales(v);
  if (granularity.find('/') == std::string_view::npos) {
    if (only_v) granularities.first = "";
    if (only_k) granularities.second = "";
  }
  if (transform.find('/') == std::string_view::npos) {
    if (only_v) transforms.first = "";
    if (only_k) transforms.second = "";
    for (const KvTransform of_k : {KvTransform::kCentered, KvTransform::kBalanced}) {
      if (transform == Name(of_k)) transforms.second = "";  // says nothing of V
    }
  }
  KvSidePair pair;
  TQ_ASSIGN_OR_RETURN(pair.k, ParseGranularity(granularities.first, k));
  TQ_ASSIGN_OR_RETURN(pair.v, ParseGranularity(granularities.second, v));
  TQ_ASSIGN_OR_RETURN(pair.k.transform, ParseTransform(transforms.first, KvSide::kKey, pair.k));
  TQ_ASSIGN_OR_RETURN(pair.v.transform, ParseTransform(transforms.second, KvSide::kValue, pair.v));
  TQ_RETURN_IF_ERROR(ValidateSide(pair.k));
  TQ_RETURN_IF_ERROR(ValidateSide(pair.v));
  return pair;
}

Status ValidateStaticScales(const KvCacheSpec& spec, const KvStaticScales& scales) {
  TQ_RETURN_IF_ERROR(ValidateScalesOfSide(spec, KvSide::kKey, scales.k));
  TQ_RETURN_IF_ERROR(ValidateBalance(spec, scales.k_balance));
  return ValidateScalesOfSide(spec, KvSide::kValue, scales.v);
}

HeadScales ScalesOfHead(const KvSideSpec& side, const std::vector<float>& scales, int head,
                        int head_dim) {
  const size_t index = static_cast<size_t>(head);
  switch (side.granularity) {
    case ScaleGranularity::kPerTensor:
      CHECK_EQ(scales.size(), size_t{1});
      return {.head = scales[0]};
    case ScaleGranularity::kPerHead:
      CHECK_LT(index, scales.size());
      return {.head = scales[index]};
    case ScaleGranularity::kPerChannel:
      CHECK_LE((index + 1) * static_cast<size_t>(head_dim), scales.size());
      return {.channels = scales.data() + index * static_cast<size_t>(head_dim)};
    case ScaleGranularity::kNone:
    case ScaleGranularity::kPerBlock:
    case ScaleGranularity::kPerTokenHead:
    case ScaleGranularity::kPerTokenHeadU8:
    case ScaleGranularity::kPerGroup:
      return {};
  }
  CHECK(false);
  return {};
}

}  // namespace turboquant
