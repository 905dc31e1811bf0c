#include "base/heat_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/check.h"

namespace turboquant {
namespace {

constexpr size_t kPaletteEntries = 256;

struct Rgb {
  float r, g, b;
};
// Blue over green to yellow: lightness rises all the way, so that it also works without colours.
constexpr std::array<Rgb, 5> kRamp = {
    {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {253, 231, 37}}};

void Append(uint32_t value, size_t bytes, std::string* out) {
  for (size_t i = 0; i < bytes; ++i) *out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void AppendPalette(std::string* out) {
  for (size_t i = 0; i < kPaletteEntries; ++i) {
    const float at = static_cast<float>(i * (kRamp.size() - 1)) / (kPaletteEntries - 1);
    const size_t from = std::min(static_cast<size_t>(at), kRamp.size() - 2);
    const float part = at - static_cast<float>(from);
    const Rgb &a = kRamp[from], &b = kRamp[from + 1];
    for (const float channel :
         {a.b + part * (b.b - a.b), a.g + part * (b.g - a.g), a.r + part * (b.r - a.r)}) {
      *out += static_cast<char>(std::lround(channel));
    }
    *out += '\0';
  }
}

// Width and height in pixels, `stride` bytes a line, then the palette.
std::string BmpHeader(uint32_t width, uint32_t height, uint32_t stride) {
  constexpr uint32_t kHeader = 14 + 40, kPixelsAt = kHeader + 4 * kPaletteEntries;
  std::string out = "BM";
  Append(kPixelsAt + stride * height, 4, &out);
  Append(0, 4, &out);
  Append(kPixelsAt, 4, &out);
  Append(40, 4, &out);  // size of what follows but the palette
  Append(width, 4, &out);
  Append(height, 4, &out);
  Append(1, 2, &out);                              // planes
  Append(8, 2, &out);                              // bits per pixel
  for (int i = 0; i < 6; ++i) Append(0, 4, &out);  // no compression, defaults
  AppendPalette(&out);
  return out;
}

}  // namespace

std::string Base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    uint32_t word = 0;
    for (size_t i = 0; i < 3; ++i) {
      word = word << 8 | (i < count ? static_cast<uint8_t>(bytes[at + i]) : 0);
    }
    for (size_t i = 0; i < 4; ++i) {
      out += i <= count ? kDigits[word >> (18 - 6 * i) & 63] : '=';
    }
  }
  return out;
}

std::string HeatImage(std::span<const float> values, int columns, int zoom) {
  CHECK_GT(columns, 0);
  const auto width = static_cast<size_t>(columns), height = values.size() / width;
  CHECK_EQ(width * height, values.size());
  const size_t stride = (width + 3) / 4 * 4;
  std::string bmp = BmpHeader(static_cast<uint32_t>(width), static_cast<uint32_t>(height),
                              static_cast<uint32_t>(stride));
  for (size_t row = height; row-- > 0;) {  // the lowest line first
    for (size_t column = 0; column < stride; ++column) {
      const float value = column < width ? values[row * width + column] : 0;
      const float clamped = value > 0 ? std::min(value, 1.0f) : 0;
      bmp += static_cast<char>(std::lround(clamped * (kPaletteEntries - 1)));
    }
  }
  return fmt::format(
      "<img width={} height={} style=\"image-rendering:pixelated\" alt=\"\" "
      "src=\"data:image/bmp;base64,{}\">",
      width * static_cast<size_t>(zoom), height * static_cast<size_t>(zoom), Base64(bmp));
}

}  // namespace turboquant
