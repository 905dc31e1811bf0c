// turboquant chat: a conversation on a terminal. The cache is kept between turns: each turn
// computes only what is new.
#include <fmt/format.h>
#include <histedit.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/text.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "model/tokenizer.h"

namespace turboquant::cli {
namespace {

struct ChatFlags {
  ModelFlags model;
  SamplingParams sampling{.temperature = 0.7f, .top_p = 0.9f};
  std::string system;
  int max_tokens = 512;
};

// Lines from the user: with history and editing on a terminal, plain otherwise.
class LineReader {
 public:
  LineReader() {
    if (::isatty(STDIN_FILENO) != 1) return;
    edit_ = el_init("turboquant", stdin, stderr, stderr);
    history_ = history_init();
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, 1000);
    el_set(edit_, EL_PROMPT, +[](EditLine*) { return const_cast<char*>("> "); });
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, ::history, history_);
  }
  ~LineReader() {
    if (edit_ != nullptr) el_end(edit_);
    if (history_ != nullptr) history_end(history_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // False at the end of input.
  bool Read(std::string* line) {
    if (edit_ == nullptr) return static_cast<bool>(std::getline(std::cin, *line));
    int count = 0;
    const char* text = el_gets(edit_, &count);
    if (text == nullptr || count <= 0) return false;
    line->assign(text, static_cast<size_t>(count));
    while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
    if (!line->empty()) {
      HistEvent event;
      ::history(history_, &event, H_ENTER, line->c_str());
    }
    return true;
  }

 private:
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
};

// The messages so far and the tokens that stand for them in the cache.
class Conversation {
 public:
  Conversation(Engine* engine, const ChatFlags& flags) : engine_(engine), flags_(flags) { Reset(); }

  void Reset() {
    if (last_) engine_->Release(*last_);
    last_.reset();
    messages_.clear();
    tokens_.clear();
    formatted_ = 0;
    if (!flags_.system.empty()) messages_.push_back({"system", flags_.system});
  }

  // One turn: streams the answer. False when stdout is closed.
  Result<bool> Say(const std::string& text) {
    const size_t turn_start = messages_.size();
    messages_.push_back({"user", text});
    const Tokenizer& tokenizer = engine_->model().tokenizer();
    TQ_ASSIGN_OR_RETURN(const std::string prompt, tokenizer.ApplyChatTemplate(messages_, true));
    const std::string_view fresh =
        std::string_view(prompt).substr(std::min(formatted_, prompt.size()));
    std::vector<int32_t> next = tokens_;
    for (const int32_t token : tokenizer.Encode(fresh, tokens_.empty(), true))
      next.push_back(token);
    Request request{.prompt = next,
                    .sampling = flags_.sampling,
                    .max_tokens = flags_.max_tokens,
                    .keep_cache = true,
                    .continue_from = last_};
    auto id = engine_->AddRequest(std::move(request));
    if (!id) {
      messages_.resize(turn_start);
      return std::unexpected(id.error());
    }
    tokens_ = std::move(next);
    last_ = *id;
    return Answer(*id);
  }

  const RequestStats& stats() const { return stats_; }

  std::string Transcript() const {
    std::string text;
    for (const ChatMessage& message : messages_)
      text += fmt::format("{}:\n{}\n\n", message.role, message.content);
    return text;
  }

 private:
  Result<bool> Answer(RequestId id) {
    std::string answer;
    bool open = true;
    while (engine_->HasWork()) {
      for (const RequestOutput& out : engine_->Step()) {
        if (out.token) tokens_.push_back(*out.token);
        answer += out.text;
        if (open && !Print(out.text)) {
          open = false;
          engine_->Cancel(id);
        }
        if (out.finish_reason == FinishReason::kError)
          return Fail(ErrorCode::kIo, "chat: {}", out.error);
        if (out.finish_reason) stats_ = out.stats;
      }
    }
    messages_.push_back({"assistant", answer});
    TQ_RETURN_IF_ERROR(CloseTurn(answer));
    return open && Print("\n");
  }

  // The template ends a turn with text of its own after the answer. What of it the model generated
  // itself (its end token) is in the cache already; the rest is fed with the next turn.
  Status CloseTurn(const std::string& answer) {
    const Tokenizer& tokenizer = engine_->model().tokenizer();
    TQ_ASSIGN_OR_RETURN(const std::string closed, tokenizer.ApplyChatTemplate(messages_, false));
    const size_t at = closed.rfind(answer);
    formatted_ = at == std::string::npos ? closed.size() : at + answer.size();
    if (!tokens_.empty() && tokenizer.IsEndOfGeneration(tokens_.back())) {
      const std::string end = tokenizer.TokenToBytes(tokens_.back(), true);
      if (closed.compare(formatted_, end.size(), end) == 0) formatted_ += end.size();
    }
    return {};
  }

  Engine* engine_;
  const ChatFlags& flags_;
  std::vector<ChatMessage> messages_;
  std::vector<int32_t> tokens_;
  size_t formatted_ = 0;  // characters of the formatted conversation that tokens_ stand for
  std::optional<RequestId> last_;
  RequestStats stats_;
};

constexpr std::string_view kHelp =
    "/help        this list\n"
    "/reset       forget the conversation and its cache\n"
    "/kv          what the cache holds\n"
    "/save FILE   write the conversation as text\n"
    "/quit        leave (or Ctrl-D)\n";

std::string DescribeCache(const RequestStats& stats, const CachePlan& plan) {
  return fmt::format(
      "{} tokens in {} ({}; f16: {}), {:.2f} bits per value, {:.2f} with exact tail and sinks; "
      "last turn computed {} "
      "prompt tokens, reused {}\n",
      stats.kv_tokens, FormatBytes(stats.kv_bytes), plan.formats, FormatBytes(stats.kv_bytes_f16),
      stats.bits_per_value, stats.effective_bits, stats.prompt_tokens - stats.reused_tokens,
      stats.reused_tokens);
}

// True when the line was a command; sets `quit` on /quit.
bool HandleCommand(const std::string& line, Conversation* conversation, const CachePlan& plan,
                   bool* quit) {
  if (line.empty() || line.front() != '/') return false;
  if (line == "/quit" || line == "/exit") {
    *quit = true;
  } else if (line == "/reset") {
    conversation->Reset();
  } else if (line == "/kv") {
    fmt::print(stderr, "{}", DescribeCache(conversation->stats(), plan));
  } else if (line.starts_with("/save ") && line.size() > 6) {
    const Status saved = WriteFileAtomically(line.substr(6), conversation->Transcript());
    fmt::print(stderr, "{}\n", saved ? "saved " + line.substr(6) : saved.error().message);
  } else {
    fmt::print(stderr, "{}", kHelp);
  }
  return true;
}

Result<int> Chat(const ChatFlags& flags) {
  TQ_RETURN_IF_ERROR(flags.sampling.Validate());
  TQ_ASSIGN_OR_RETURN(auto engine, LoadEngine(flags.model, 1));
  if (!engine->model().tokenizer().has_chat_template()) {
    return Fail(ErrorCode::kUnsupported,
                "chat: the model has no chat template; use 'turboquant run --raw'");
  }
  if (StderrIsTerminal()) fmt::print(stderr, "/help lists commands, Ctrl-D leaves\n");
  Conversation conversation(engine.get(), flags);
  LineReader reader;
  std::string line;
  bool quit = false;
  while (!quit && !StopFlag().load() && reader.Read(&line)) {
    if (line.empty() || HandleCommand(line, &conversation, engine->plan(), &quit)) continue;
    const Result<bool> said = conversation.Say(line);
    if (!said) {
      if (said.error().code != ErrorCode::kInvalidArgument) return std::unexpected(said.error());
      Report(said.error());
    } else if (!*said) {
      return kExitDone;
    }
    if (StopFlag().load()) ClearStop();  // Ctrl-C ended the answer, not the conversation
  }
  WarnOfScales(engine.get());
  return StopFlag().load() ? kExitInterrupted : kExitDone;
}

}  // namespace

Verb AddChat(CLI::App* program) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* verb =
      program->add_subcommand("chat", "talk with the model; the cache is kept between turns");
  verb->add_option("--system", flags->system, "system message");
  verb->add_option("-n,--max-tokens", flags->max_tokens, "tokens per answer")
      ->check(CLI::Range(1, 1 << 26))
      ->capture_default_str();
  AddModelFlags(verb, &flags->model);
  AddSamplingFlags(verb, &flags->sampling);
  return {verb, [flags] {
            const Result<int> status = Chat(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
