#include "codec/kv_cache_dtype.h"

#include <algorithm>

#include "base/check.h"

namespace turboquant {
namespace {

struct Alias {
  std::string_view name;
  KvCacheDtype dtype;
};

// What other engines and libraries call these or their nearest relatives: numpy, PyTorch, vLLM,
// llama.cpp.
constexpr std::array kAliases = {
    Alias{"float32", KvCacheDtype::kF32},
    Alias{"fp32", KvCacheDtype::kF32},
    Alias{"float", KvCacheDtype::kF32},
    Alias{"float16", KvCacheDtype::kF16},
    Alias{"fp16", KvCacheDtype::kF16},
    Alias{"half", KvCacheDtype::kF16},
    Alias{"bfloat16", KvCacheDtype::kBf16},
    Alias{"q8_0", KvCacheDtype::kInt8},
    Alias{"i8", KvCacheDtype::kInt8},
    Alias{"fp8", KvCacheDtype::kFp8E4m3},
    Alias{"fp8_e4m3fn", KvCacheDtype::kFp8E4m3},
    Alias{"float8_e4m3fn", KvCacheDtype::kFp8E4m3},
    Alias{"e4m3", KvCacheDtype::kFp8E4m3},
    Alias{"float8_e5m2", KvCacheDtype::kFp8E5m2},
    Alias{"e5m2", KvCacheDtype::kFp8E5m2},
    Alias{"q5_0", KvCacheDtype::kInt5},
    Alias{"q5_1", KvCacheDtype::kInt5},
    Alias{"q4_0", KvCacheDtype::kInt4},
    Alias{"i4", KvCacheDtype::kInt4},
    Alias{"q4_1", KvCacheDtype::kInt4Asym},
};

std::string ToLower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return lower;
}

}  // namespace

std::string_view Name(KvCacheDtype dtype) {
  switch (dtype) {
    case KvCacheDtype::kF32:
      return "f32";
    case KvCacheDtype::kF16:
      return "f16";
    case KvCacheDtype::kBf16:
      return "bf16";
    case KvCacheDtype::kInt8:
      return "int8";
    case KvCacheDtype::kFp8E4m3:
      return "fp8_e4m3";
    case KvCacheDtype::kFp8E5m2:
      return "fp8_e5m2";
    case KvCacheDtype::kInt6:
      return "int6";
    case KvCacheDtype::kInt5:
      return "int5";
    case KvCacheDtype::kInt4:
      return "int4";
    case KvCacheDtype::kInt3:
      return "int3";
    case KvCacheDtype::kInt2:
      return "int2";
    case KvCacheDtype::kInt4Sym:
      return "int4_sym";
    case KvCacheDtype::kInt4Asym:
      return "int4_asym";
  }
  CHECK(false);
  return "";
}

std::string_view Name(KvTransform transform) {
  switch (transform) {
    case KvTransform::kNone:
      return "none";
    case KvTransform::kRotated:
      return "rotated";
    case KvTransform::kCentered:
      return "centered";
    case KvTransform::kBalanced:
      return "balanced";
  }
  CHECK(false);
  return "";
}

std::string_view Name(ScaleGranularity granularity) {
  switch (granularity) {
    case ScaleGranularity::kNone:
      return "none";
    case ScaleGranularity::kPerTensor:
      return "per_tensor";
    case ScaleGranularity::kPerHead:
      return "per_head";
    case ScaleGranularity::kPerChannel:
      return "per_channel";
    case ScaleGranularity::kPerBlock:
      return "per_block";
    case ScaleGranularity::kPerTokenHead:
      return "per_token_head";
    case ScaleGranularity::kPerTokenHeadU8:
      return "per_token_head_u8";
    case ScaleGranularity::kPerGroup:
      return "per_group";
  }
  CHECK(false);
  return "";
}

Result<KvCacheDtype> ParseKvCacheDtype(std::string_view text, std::string* note) {
  const std::string name = ToLower(text);
  for (KvCacheDtype dtype : kAllKvCacheDtypes) {
    if (name == Name(dtype)) return dtype;
  }
  for (const Alias& alias : kAliases) {
    if (name != alias.name) continue;
    if (note != nullptr) {
      *note = fmt::format("KV cache format '{}' is taken as '{}'", text, Name(alias.dtype));
    }
    return alias.dtype;
  }
  std::string known;
  for (KvCacheDtype dtype : kAllKvCacheDtypes) {
    if (!known.empty()) known += ", ";
    known += Name(dtype);
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown KV cache format '{}': known are {}", text,
              known);
}

}  // namespace turboquant
