// How like one another answers are, as machine translation and summaries are scored: BLEU-4 and
// ROUGE-L. On the model's tokens, not on words: no rule of any language splits the text, so figures
// compare caches of one model, not models, nor with figures on words.
#ifndef TURBOQUANT_EVAL_ANSWER_SCORES_H_
#define TURBOQUANT_EVAL_ANSWER_SCORES_H_

#include <cstdint>
#include <span>
#include <vector>

namespace turboquant {

// Corpus BLEU (Papineni et al. 2002) with n-grams up to 4, 0..100: counts of all answers are summed
// before precisions are taken; one reference per answer; where no n-gram of a length matches, its
// precision is halved each time from one match on ("exp", the default of sacrebleu). 0 where
// nothing matches or no answer has four tokens.
double CorpusBleu(std::span<const std::vector<int32_t>> references,
                  std::span<const std::vector<int32_t>> answers);

// ROUGE-L (Lin 2004): F1 of the longest common subsequence, 0..1. Two empty answers are the
// same: 1.
double RougeL(std::span<const int32_t> reference, std::span<const int32_t> answer);
double MeanRougeL(std::span<const std::vector<int32_t>> references,
                  std::span<const std::vector<int32_t>> answers);

}  // namespace turboquant

#endif  // TURBOQUANT_EVAL_ANSWER_SCORES_H_
