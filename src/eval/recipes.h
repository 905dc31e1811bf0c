// Formats of other engines and papers as plain recipes: values are rounded as they would be stored
// and read back in f32. For comparison in evaluations only; nothing serves from them.
//
//   q8_0, q4_0           llama.cpp: 32 channels share an f16 scale
//   q4_0_rotated         the same behind a Hadamard rotation of each head
//   turboquant_mse4,3,2  TurboQuant (arXiv 2504.19874), the variant for least squares: f16 norm of
//                        the rotated head, every channel to the nearest Lloyd-Max level of a
//                        normal distribution
//   q4_0_delta           q4_0 of the differences between neighbouring tokens of a block, each from
//                        what was stored of the one before
//   kivi4, kivi2         KIVI (arXiv 2402.02750): K per channel over 32 tokens, V per token over 32
//                        channels, each with an f16 step and minimum
//   int8, int4           ours, from the very codes, but read in floating point: what int8 and int4
//   cost
//                        beyond that is the cost of attention's integer arithmetic
// These follow our rule: newest partial block and sinks exact. "_at_once" rounds every token when
// it arrives, as llama.cpp does: q8_0_at_once, q4_0_at_once. Their queries stay f32, unlike
// llama.cpp's.
#ifndef TURBOQUANT_EVAL_RECIPES_H_
#define TURBOQUANT_EVAL_RECIPES_H_

#include <memory>
#include <string>
#include <string_view>

#include "attention/paged_attention.h"
#include "base/error.h"

namespace turboquant {

inline constexpr std::string_view kRecipePrefix = "recipe:";

struct Recipe {
  std::string name;           // with the prefix
  double bits_per_value = 0;  // of stored values with their scales
  bool at_once = false;       // no exact tail or sinks
  std::unique_ptr<KvRecipe> rounding;
};

// text: a name as above behind kRecipePrefix. kInvalidArgument lists the names; kUnsupported where
// heads are no multiple of 32 channels or blocks none of 32 tokens.
Result<Recipe> MakeRecipe(std::string_view text, int head_dim, int block_size, int num_sink_tokens);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_RECIPES_H_
