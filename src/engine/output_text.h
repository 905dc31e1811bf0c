// Text of one request from the bytes of its tokens: whole UTF-8 characters, cut before the first
// stop string.
#ifndef TURBOQUANT_ENGINE_OUTPUT_TEXT_H_
#define TURBOQUANT_ENGINE_OUTPUT_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"

namespace turboquant {

class OutputText {
 public:
  explicit OutputText(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  // Bytes of the next token; returns the text that is certain now. Nothing more comes once
  // stopped().
  std::string Push(std::string_view bytes);
  // The end: returns what was held back.
  std::string Flush();
  // A stop string has appeared.
  bool stopped() const { return stopped_; }

 private:
  std::string Release(std::string text);

  std::vector<std::string> stop_;
  Utf8Stream utf8_;
  std::string held_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_OUTPUT_TEXT_H_
