#include "model/tokenizer.h"

#include <llama.h>

#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/deep_stack.h"
#include "model/ggml_support.h"

namespace turboquant {
namespace {

struct ModelDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
};

// libllama splits text into words with std::regex for the pre-tokenizers that it has no code of its
// own for; that recurses once per character of a word, at some 330 bytes each, and bad UTF-8 counts
// thrice. Measured: 100,000 equal digits overflow 8 MiB with "default", "falcon", "deepseek-llm"
// and "gpt-4o".
constexpr size_t kLongText = 4096;
constexpr size_t kStackBytesPerByte = 2048;
constexpr size_t kMinStackBytes = 8 << 20;

int32_t TextSize(std::string_view text) {
  CHECK_LE(text.size(), static_cast<size_t>(std::numeric_limits<int32_t>::max()));
  return static_cast<int32_t>(text.size());
}

}  // namespace

struct Tokenizer::Impl {
  std::unique_ptr<llama_model, ModelDeleter> model;  // vocabulary only
  const llama_vocab* vocab = nullptr;
  int vocab_size = 0;
  std::string chat_template;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  InitGgml();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.n_gpu_layers = 0;
  auto impl = std::make_unique<Impl>();
  ClearLastGgmlError();
  impl->model.reset(llama_model_load_from_file(path.c_str(), params));
  if (impl->model == nullptr) {
    return Fail(ErrorCode::kUnsupported, "{}: libllama cannot open the vocabulary: {}", path,
                LastGgmlError());
  }
  impl->vocab = llama_model_get_vocab(impl->model.get());
  impl->vocab_size = llama_vocab_n_tokens(impl->vocab);
  if (const char* text = llama_model_chat_template(impl->model.get(), nullptr))
    impl->chat_template = text;
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, bool add_special,
                                       bool parse_special) const {
  std::vector<int32_t> tokens(text.size() / 2 + 16);
  const auto encode = [&] {
    return llama_tokenize(impl_->vocab, text.data(), TextSize(text), tokens.data(),
                          static_cast<int32_t>(tokens.size()), add_special, parse_special);
  };
  int32_t count = 0;
  const auto encode_all = [&] {
    count = encode();
    if (count < 0) {
      tokens.resize(static_cast<size_t>(-static_cast<int64_t>(count)));
      count = encode();
    }
  };
  if (text.size() <= kLongText) {
    encode_all();
  } else {
    RunOnDeepStack(kMinStackBytes + text.size() * kStackBytesPerByte, encode_all);
  }
  CHECK_GE(count, 0);
  tokens.resize(static_cast<size_t>(count));
  return tokens;
}

std::string Tokenizer::TokenToBytes(int32_t token, bool special) const {
  CHECK_GE(token, 0);
  CHECK_LT(token, impl_->vocab_size);  // libllama would throw
  std::string bytes(32, '\0');
  const auto convert = [&] {
    return llama_token_to_piece(impl_->vocab, token, bytes.data(),
                                static_cast<int32_t>(bytes.size()), /*lstrip=*/0, special);
  };
  int32_t size = convert();
  if (size < 0) {
    bytes.resize(static_cast<size_t>(-static_cast<int64_t>(size)));
    size = convert();
  }
  CHECK_GE(size, 0);
  bytes.resize(static_cast<size_t>(size));
  return bytes;
}

std::string Tokenizer::Decode(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) {
    CHECK_GE(token, 0);
    CHECK_LT(token, impl_->vocab_size);
  }
  std::string text(tokens.size() * 8 + 16, '\0');
  const auto decode = [&] {
    return llama_detokenize(impl_->vocab, tokens.data(), static_cast<int32_t>(tokens.size()),
                            text.data(), TextSize(text),
                            /*remove_special=*/false, /*unparse_special=*/false);
  };
  int32_t size = decode();
  if (size < 0) {
    text.resize(static_cast<size_t>(-static_cast<int64_t>(size)));
    size = decode();
  }
  CHECK_GE(size, 0);
  text.resize(static_cast<size_t>(size));
  return text;
}

bool Tokenizer::IsEndOfGeneration(int32_t token) const {
  return llama_vocab_is_eog(impl_->vocab, token);
}
int Tokenizer::vocab_size() const { return impl_->vocab_size; }
bool Tokenizer::has_chat_template() const { return !impl_->chat_template.empty(); }
const llama_vocab* Tokenizer::vocab() const { return impl_->vocab; }

Result<std::string> Tokenizer::ApplyChatTemplate(std::span<const ChatMessage> messages,
                                                 bool add_generation_prompt) const {
  if (!has_chat_template()) return Fail(ErrorCode::kUnsupported, "the model has no chat template");
  std::vector<llama_chat_message> chat;
  size_t size = 256;
  for (const ChatMessage& message : messages) {
    chat.push_back({message.role.c_str(), message.content.c_str()});
    size += 2 * (message.role.size() + message.content.size()) + 64;
  }
  std::string text(size, '\0');
  const auto apply = [&] {
    return llama_chat_apply_template(impl_->chat_template.c_str(), chat.data(), chat.size(),
                                     add_generation_prompt, text.data(), TextSize(text));
  };
  int32_t used = apply();
  if (used > TextSize(text)) {
    text.resize(static_cast<size_t>(used));
    used = apply();
  }
  if (used < 0) {
    return Fail(ErrorCode::kUnsupported,
                "the model's chat template is not one that libllama knows; give a plain prompt");
  }
  text.resize(static_cast<size_t>(used));
  return text;
}

}  // namespace turboquant
