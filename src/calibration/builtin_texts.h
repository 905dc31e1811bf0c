// A small mix of texts to calibrate on where the user has none: dialogue, code, mathematics, prose,
// several languages. Written for this project.
#ifndef TURBOQUANT_CALIBRATION_BUILTIN_TEXTS_H_
#define TURBOQUANT_CALIBRATION_BUILTIN_TEXTS_H_

#include <span>
#include <string_view>

namespace turboquant {

struct BuiltinText {
  std::string_view name;     // "dialogue"
  std::string_view content;  // UTF-8
};
std::span<const BuiltinText> BuiltinCalibrationTexts();

}  // namespace turboquant

#endif  // TURBOQUANT_CALIBRATION_BUILTIN_TEXTS_H_
