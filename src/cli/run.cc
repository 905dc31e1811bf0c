// turboquant run: generate text from one prompt.
#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/text.h"
#include "cli/console.h"
#include "cli/model_flags.h"
#include "cli/verbs.h"
#include "model/tokenizer.h"

namespace turboquant::cli {
namespace {

struct RunFlags {
  ModelFlags model;
  SamplingParams sampling;
  std::string prompt;
  bool prompt_given = false;
  int max_tokens = 0;
  std::vector<std::string> stop;
  bool raw = false;
  bool ignore_eos = false;
  bool json = false;
};

Result<std::string> ReadPrompt(const RunFlags& flags) {
  std::string prompt = flags.prompt;
  if (!flags.prompt_given || prompt == "-") {
    if (::isatty(STDIN_FILENO) == 1) {
      return Fail(ErrorCode::kInvalidArgument,
                  "run: no prompt; give one with -p TEXT or on standard input");
    }
    prompt.assign(std::istreambuf_iterator<char>(std::cin), {});
  }
  if (prompt.empty())
    return Fail(ErrorCode::kInvalidArgument,
                "run: the prompt is empty; give at least one character");
  return prompt;
}

Result<std::vector<int32_t>> TokenizePrompt(const Tokenizer& tokenizer, const std::string& prompt,
                                            bool raw) {
  if (raw || !tokenizer.has_chat_template()) return tokenizer.Encode(prompt, true, false);
  const ChatMessage message{"user", prompt};
  TQ_ASSIGN_OR_RETURN(const std::string text, tokenizer.ApplyChatTemplate({&message, 1}, true));
  return tokenizer.Encode(text, true, true);
}

struct RunResult {
  std::string text;
  RequestOutput last;  // with finish_reason and stats
  bool stdout_closed = false;
};

// Steps the engine until the request has ended, streaming text to stdout unless `quiet`.
RunResult Generate(Engine* engine, RequestId id, int prompt_tokens, bool quiet) {
  RunResult result;
  ProgressLine progress("prefill");
  while (engine->HasWork()) {
    for (RequestOutput& out : engine->Step()) {
      progress.Clear();
      result.text += out.text;
      if (!quiet && !out.text.empty() && !Print(out.text)) {
        result.stdout_closed = true;
        engine->Cancel(id);
      }
      if (out.finish_reason) result.last = std::move(out);
    }
    const EngineStats stats = engine->stats();
    if (stats.generated_tokens == 0) progress.Update(stats.computed_tokens, prompt_tokens);
  }
  return result;
}

nlohmann::ordered_json ToJson(const RunResult& result, const CachePlan& plan) {
  const RequestStats& stats = result.last.stats;
  return {
      {"text", result.text},
      {"prompt_tokens", stats.prompt_tokens},
      {"generated_tokens", stats.generated_tokens},
      {"ttft_ms", stats.ttft_seconds * 1e3},
      {"tokens_per_second",
       {{"prefill", stats.PrefillTokensPerSecond()}, {"decode", stats.DecodeTokensPerSecond()}}},
      {"kv",
       {{"dtype", plan.formats},
        {"bits_per_value", stats.bits_per_value},
        {"effective_bits", stats.effective_bits},
        {"bytes", stats.kv_bytes},
        {"bytes_f16", stats.kv_bytes_f16}}},
      {"finish_reason", Name(*result.last.finish_reason)}};
}

void PrintSummary(const RunResult& result, Engine* engine) {
  const RequestStats& stats = result.last.stats;
  const KvCacheDtype dtype = engine->plan().config.layers.back().k.dtype;
  fmt::print(stderr,
             "\nprefill {} tokens at {:.1f} tokens/s, decode {} tokens at {:.1f} tokens/s ({})\n"
             "KV cache {} for {} tokens (f16: {}), {}: {:.2f} bits per value, {:.2f} with exact "
             "tail and sinks; kernel {}\n",
             stats.prompt_tokens, stats.PrefillTokensPerSecond(), stats.generated_tokens,
             stats.DecodeTokensPerSecond(), Name(*result.last.finish_reason),
             FormatBytes(stats.kv_bytes), stats.kv_tokens, FormatBytes(stats.kv_bytes_f16),
             engine->plan().formats, stats.bits_per_value, stats.effective_bits,
             engine->runner().kernels().of(dtype).qk_name);
}

Result<int> Run(const RunFlags& flags) {
  TQ_ASSIGN_OR_RETURN(const std::string prompt, ReadPrompt(flags));
  TQ_RETURN_IF_ERROR(flags.sampling.Validate());
  TQ_ASSIGN_OR_RETURN(auto engine, LoadEngine(flags.model, 1));
  Request request{.sampling = flags.sampling,
                  .max_tokens = flags.max_tokens,
                  .stop = flags.stop,
                  .ignore_end_of_generation = flags.ignore_eos};
  TQ_ASSIGN_OR_RETURN(request.prompt,
                      TokenizePrompt(engine->model().tokenizer(), prompt, flags.raw));
  const int prompt_tokens = static_cast<int>(request.prompt.size());
  TQ_ASSIGN_OR_RETURN(const RequestId id, engine->AddRequest(std::move(request)));

  const RunResult result = Generate(engine.get(), id, prompt_tokens, flags.json);
  if (result.stdout_closed) return kExitDone;
  if (*result.last.finish_reason == FinishReason::kError) {
    return Fail(ErrorCode::kIo, "run: {}", result.last.error);
  }
  if (flags.json) {
    Print(ToJson(result, engine->plan())
              .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
          "\n");
  } else {
    Print("\n");
    PrintSummary(result, engine.get());
  }
  WarnOfScales(engine.get());
  return StopFlag().load() ? kExitInterrupted : kExitDone;
}

}  // namespace

Verb AddRun(CLI::App* program) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* verb = program->add_subcommand("run", "generate text from a prompt");
  CLI::Option* prompt = verb->add_option("-p,--prompt", flags->prompt,
                                         "the prompt; '-' or nothing reads standard input");
  verb->add_option("-n,--max-tokens", flags->max_tokens,
                   "tokens to generate (default: until the model ends or the context is full)")
      ->check(CLI::Range(1, 1 << 26));
  verb->add_option("--stop", flags->stop, "end before this text; may be repeated");
  verb->add_flag("--raw", flags->raw,
                 "feed the prompt as it is, without the model's chat template");
  verb->add_flag("--ignore-eos", flags->ignore_eos, "go on after the model's end token");
  verb->add_flag("--json", flags->json, "print one JSON document");
  AddModelFlags(verb, &flags->model);
  AddSamplingFlags(verb, &flags->sampling);
  return {verb, [flags, prompt] {
            flags->prompt_given = prompt->count() > 0;
            const Result<int> status = Run(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
