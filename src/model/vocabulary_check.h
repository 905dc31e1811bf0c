// What libllama's vocabulary loader and tokenizer demand of a file (llama.cpp,
// src/llama-vocab.cpp): it aborts on duplicate tokens and on a missing BOS, throws through its C
// interface on missing byte tokens, and expands odd tokens quadratically. All of that is refused
// here, by name.
#ifndef TURBOQUANT_MODEL_VOCABULARY_CHECK_H_
#define TURBOQUANT_MODEL_VOCABULARY_CHECK_H_

#include <cstdint>

#include "base/error.h"
#include "model/gguf.h"

namespace turboquant {

// vocab_size: rows of the embedding matrix. Tokenizer models: "gpt2" (byte-level BPE) and "llama"
// (SentencePiece).
Status CheckVocabulary(const Gguf& file, uint64_t vocab_size);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_VOCABULARY_CHECK_H_
