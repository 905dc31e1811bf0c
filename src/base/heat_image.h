// A matrix as a picture in a page: one pixel a cell, an HTML <img> that needs no file.
#ifndef TURBOQUANT_BASE_HEAT_IMAGE_H_
#define TURBOQUANT_BASE_HEAT_IMAGE_H_

#include <span>
#include <string>
#include <string_view>

namespace turboquant {

// RFC 4648, with padding.
std::string Base64(std::string_view bytes);

// values: row by row, `columns` each, dark at 0 and bright at 1 and above; NaN counts as 0. `zoom`:
// pixels on the page per cell. The data is an 8-bit BMP with a palette.
std::string HeatImage(std::span<const float> values, int columns, int zoom);

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_HEAT_IMAGE_H_
