// Tokenizer, special tokens and chat template of a GGUF, by libllama opened with the vocabulary
// only.
#ifndef TURBOQUANT_MODEL_TOKENIZER_H_
#define TURBOQUANT_MODEL_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

struct llama_vocab;

namespace turboquant {

struct ChatMessage {
  std::string role, content;
  bool operator==(const ChatMessage&) const = default;
};

// Thread-safe: immutable after Load.
class Tokenizer {
 public:
  // The file must have been validated by Gguf::Parse and the model's checks before.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  ~Tokenizer();

  // add_special: BOS, and what else the file asks for. parse_special: text may contain special
  // tokens as written.
  std::vector<int32_t> Encode(std::string_view text, bool add_special, bool parse_special) const;
  // Bytes of one token (not always valid UTF-8 by itself: see Utf8Stream). Special tokens give ""
  // unless `special`.
  std::string TokenToBytes(int32_t token, bool special = false) const;
  std::string Decode(std::span<const int32_t> tokens) const;
  bool IsEndOfGeneration(int32_t token) const;
  int vocab_size() const;

  bool has_chat_template() const;
  // kUnsupported if the template is not one that libllama knows.
  Result<std::string> ApplyChatTemplate(std::span<const ChatMessage> messages,
                                        bool add_generation_prompt) const;
  const llama_vocab* vocab() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Joins token bytes into whole UTF-8 characters: Push returns what is complete, Flush the rest (bad
// bytes as U+FFFD).
class Utf8Stream {
 public:
  std::string Push(std::string_view bytes);
  std::string Flush();

 private:
  std::string pending_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_TOKENIZER_H_
