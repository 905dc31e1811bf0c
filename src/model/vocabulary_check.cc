#include "model/vocabulary_check.h"

#include <cmath>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace turboquant {
namespace {

constexpr size_t kMaxTokenBytes = 1024;
// Of the squared lengths of all tokens: bounds what libllama makes of tokens whose characters stand
// for no byte.
constexpr uint64_t kMaxSquaredTokenBytes = 256u << 20;
constexpr int64_t kTokenTypeByte = 6;  // llama.h: LLAMA_TOKEN_TYPE_BYTE

// libllama compares the type exactly and throws otherwise.
struct TypedKey {
  std::string_view key;
  GgufType type;
};
constexpr TypedKey kTypedKeys[] = {
    {"general.name", GgufType::kString},
    {"general.file_type", GgufType::kU32},
    {"tokenizer.chat_template", GgufType::kString},
    {"tokenizer.ggml.pre", GgufType::kString},
    {"tokenizer.ggml.token_type_count", GgufType::kU32},
    {"tokenizer.ggml.add_bos_token", GgufType::kBool},
    {"tokenizer.ggml.add_eos_token", GgufType::kBool},
    {"tokenizer.ggml.add_sep_token", GgufType::kBool},
    {"tokenizer.ggml.add_space_prefix", GgufType::kBool},
    {"tokenizer.ggml.remove_extra_whitespaces", GgufType::kBool},
    {"tokenizer.ggml.normalizer.lowercase", GgufType::kBool},
    {"tokenizer.ggml.normalizer.strip_accents", GgufType::kBool},
};

constexpr std::string_view kSpecialTokens[] = {
    "bos",     "eos",     "eot",     "eom",     "unknown", "seperator",
    "padding", "cls",     "mask",    "fim_pre", "fim_suf", "fim_mid",
    "fim_pad", "fim_rep", "fim_sep", "prefix",  "suffix",  "middle",
};

// "<0x0A>", as SentencePiece writes a byte.
bool IsByteToken(std::string_view text) {
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
  };
  return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' && is_hex(text[3]) &&
         is_hex(text[4]);
}

class VocabularyChecker {
 public:
  VocabularyChecker(const Gguf& file, uint64_t vocab_size) : file_(file), vocab_size_(vocab_size) {}

  Status Run() {
    for (const TypedKey& typed : kTypedKeys) TQ_RETURN_IF_ERROR(CheckType(typed));
    TQ_ASSIGN_OR_RETURN(const std::string_view model, RequiredString("tokenizer.ggml.model"));
    is_bpe_ = model == "gpt2";
    if (!is_bpe_ && model != "llama") {
      return Fail(ErrorCode::kUnsupported,
                  "{}: tokenizer model '{}' is not supported; supported: gpt2, llama", file_.name(),
                  PrintableText(model));
    }
    TQ_RETURN_IF_ERROR(CheckTokens());
    TQ_RETURN_IF_ERROR(CheckTokenTypes());
    TQ_RETURN_IF_ERROR(is_bpe_ ? CheckMerges() : CheckByteTokens());
    TQ_RETURN_IF_ERROR(CheckScores());
    TQ_RETURN_IF_ERROR(CheckSuppressed());
    return CheckSpecialTokens();
  }

 private:
  template <typename... Args>
  std::unexpected<Error> Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return Fail(ErrorCode::kCorrupt, "{}: {}", file_.name(),
                fmt::format(format, std::forward<Args>(args)...));
  }

  Status CheckType(const TypedKey& typed) const {
    const GgufEntry* entry = file_.FindEntry(typed.key);
    if (entry == nullptr || entry->type == typed.type) return {};
    return Corrupt("key '{}' has type {}, expected {}", typed.key, GgufTypeName(entry->type),
                   GgufTypeName(typed.type));
  }

  Result<std::string_view> RequiredString(std::string_view key) const {
    if (file_.FindEntry(key) == nullptr) return Corrupt("key '{}' is missing", key);
    return file_.GetString(key);
  }

  // nullptr if the key is absent and may be.
  Result<const GgufArray*> TypedArray(std::string_view key, std::initializer_list<GgufType> types,
                                      bool required) const {
    TQ_ASSIGN_OR_RETURN(const GgufArray* array, file_.GetArray(key));
    if (array == nullptr) {
      if (required) return Corrupt("key '{}' is missing", key);
      return nullptr;
    }
    for (const GgufType type : types) {
      if (array->element_type == type) return array;
    }
    return Corrupt("key '{}' is an array of {}, expected {}", key,
                   GgufTypeName(array->element_type), GgufTypeName(*types.begin()));
  }

  Status CheckTokens() {
    TQ_ASSIGN_OR_RETURN(const GgufArray* tokens,
                        TypedArray("tokenizer.ggml.tokens", {GgufType::kString}, true));
    if (tokens->size() != vocab_size_) {
      return Corrupt("the vocabulary has {} tokens, the embedding matrix {} rows", tokens->size(),
                     vocab_size_);
    }
    uint64_t squared_bytes = 0;
    seen_.reserve(tokens->size());
    placeholders_.reserve(tokens->size());  // so that views into its strings stay valid
    for (uint64_t i = 0; i < tokens->size(); ++i) {
      std::string_view text = tokens->strings[i];
      // libllama puts this text in place of an empty one, which must not meet a token that is
      // called so.
      if (text.empty()) text = placeholders_.emplace_back(fmt::format("[EMPTY_{}]", i));
      if (text.size() > kMaxTokenBytes) {
        return Corrupt("token {} has {} bytes, more than {}", i, text.size(), kMaxTokenBytes);
      }
      squared_bytes += text.size() * text.size();
      if (!seen_.insert(text).second)
        return Corrupt("token {} is there twice: '{}'", i, PrintableText(text));
    }
    if (squared_bytes > kMaxSquaredTokenBytes)
      return Corrupt("the tokens of the vocabulary are absurdly long");
    tokens_ = tokens;
    return {};
  }

  Status CheckTokenTypes() const {
    TQ_ASSIGN_OR_RETURN(const GgufArray* types,
                        TypedArray("tokenizer.ggml.token_type", {GgufType::kI32}, false));
    if (types == nullptr) return {};
    if (types->size() != vocab_size_) {
      return Corrupt("key 'tokenizer.ggml.token_type' has {} elements, expected {}", types->size(),
                     vocab_size_);
    }
    for (uint64_t i = 0; i < types->size(); ++i) {
      if (types->Integer(i) == kTokenTypeByte && !IsByteToken(tokens_->strings[i])) {
        return Corrupt("token {} has the type of a byte but is '{}', not like '<0x0A>'", i,
                       PrintableText(tokens_->strings[i]));
      }
    }
    return {};
  }

  Status CheckMerges() const {
    TQ_RETURN_IF_ERROR(TypedArray("tokenizer.ggml.merges", {GgufType::kString}, true));
    return {};
  }

  // SentencePiece falls back to a token per byte; libllama throws where one is missing.
  Status CheckByteTokens() const {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string text = fmt::format("<0x{:02X}>", byte);
      const char raw = static_cast<char>(byte);
      if (!seen_.contains(text) && !seen_.contains(std::string_view(&raw, 1))) {
        return Corrupt("the vocabulary has no token for the byte {}", text);
      }
    }
    return {};
  }

  Status CheckScores() const {
    TQ_ASSIGN_OR_RETURN(const GgufArray* scores,
                        TypedArray("tokenizer.ggml.scores", {GgufType::kF32, GgufType::kI32},
                                   /*required=*/!is_bpe_));
    if (scores == nullptr) return {};
    if (scores->size() != vocab_size_) {
      return Corrupt("key 'tokenizer.ggml.scores' has {} elements, expected {}", scores->size(),
                     vocab_size_);
    }
    for (uint64_t i = 0; scores->is_float() && i < scores->size(); ++i) {
      if (std::isnan(scores->Float(i)))
        return Corrupt("key 'tokenizer.ggml.scores' is not a number at element {}", i);
    }
    return {};
  }

  Status CheckSuppressed() const {
    TQ_RETURN_IF_ERROR(TypedArray("tokenizer.ggml.suppress_tokens", {GgufType::kI32}, false));
    return {};
  }

  Status CheckSpecialTokens() const {
    for (const std::string_view name : kSpecialTokens) {
      const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
      TQ_RETURN_IF_ERROR(CheckType({key, GgufType::kU32}));
      TQ_RETURN_IF_ERROR(file_.GetUint(key, 0, vocab_size_ - 1, 0));
    }
    // libllama's defaults, which hold where the file names no id. It drops one that is no token,
    // and asserts when a prompt then has to start or end with it.
    const std::pair<std::string_view, uint64_t> defaults[] = {
        {"tokenizer.ggml.bos_token_id", is_bpe_ ? 11 : 1},
        {"tokenizer.ggml.eos_token_id", is_bpe_ ? 11 : 2}};
    for (const auto& [key, id] : defaults) {
      if (file_.FindEntry(key) == nullptr && id >= vocab_size_) {
        return Corrupt("key '{}' is missing, and its default {} is no token", key, id);
      }
    }
    return {};
  }

  const Gguf& file_;
  const uint64_t vocab_size_;
  bool is_bpe_ = false;
  const GgufArray* tokens_ = nullptr;
  std::unordered_set<std::string_view> seen_;
  std::vector<std::string> placeholders_;
};

}  // namespace

Status CheckVocabulary(const Gguf& file, uint64_t vocab_size) {
  return VocabularyChecker(file, vocab_size).Run();
}

}  // namespace turboquant
