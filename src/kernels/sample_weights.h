// Made-up blocks of weights (kernels/matmul.h): what tests and the self-check multiply.
#ifndef TURBOQUANT_KERNELS_SAMPLE_WEIGHTS_H_
#define TURBOQUANT_KERNELS_SAMPLE_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <random>
#include <span>

#include "kernels/matmul.h"

namespace turboquant {

struct SampleWeights {
  std::optional<uint8_t> byte;  // of all codes, fifth bits and six-bit factors; else random
  float largest = 0.1f;         // scales and mins are of [largest / 8, largest], either sign; f16
};

// Fills whole blocks of the type.
void FillWeights(WeightType type, const SampleWeights& sample, std::mt19937& random,
                 std::span<uint8_t> blocks);

}  // namespace turboquant

#endif  // TURBOQUANT_KERNELS_SAMPLE_WEIGHTS_H_
