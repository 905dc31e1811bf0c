#include "model/sampler.h"

#include <llama.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"

namespace turboquant {
namespace {

// Tokens back that the repetition penalty reaches: more than any context this engine serves today,
// in 256 KiB.
constexpr int kPenaltyWindow = 1 << 16;

struct ChainDeleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};

// libllama takes 32 bits and reads one value as "choose at random".
uint32_t FoldSeed(uint64_t seed) {
  const auto folded = static_cast<uint32_t>(seed ^ (seed >> 32));
  return folded == LLAMA_DEFAULT_SEED ? 0x5EED5EEDu : folded;
}

}  // namespace

Status SamplingParams::Validate() const {
  const auto in_range = [](float value, float min, float max) {
    return value >= min && value <= max;
  };  // false for NaN
  if (!in_range(temperature, 0.0f, 100.0f)) {
    return Fail(ErrorCode::kInvalidArgument, "temperature is {}, must be 0 (greedy) to 100",
                temperature);
  }
  if (!(top_p > 0.0f && top_p <= 1.0f)) {
    return Fail(ErrorCode::kInvalidArgument, "top-p is {}, must be above 0 and at most 1 (off)",
                top_p);
  }
  if (!in_range(min_p, 0.0f, 1.0f))
    return Fail(ErrorCode::kInvalidArgument, "min-p is {}, must be 0 (off) to 1", min_p);
  if (top_k < 0)
    return Fail(ErrorCode::kInvalidArgument, "top-k is {}, must be 0 (off) or more", top_k);
  if (!in_range(repetition_penalty, 0.01f, 100.0f)) {
    return Fail(ErrorCode::kInvalidArgument,
                "repetition penalty is {}, must be 0.01 to 100, 1 = off", repetition_penalty);
  }
  return {};
}

struct Sampler::Impl {
  std::unique_ptr<llama_sampler, ChainDeleter> chain;
  std::vector<llama_token_data> candidates;
  bool greedy = false, penalized = false;
};

Sampler::Sampler(const Tokenizer& tokenizer, const SamplingParams& params)
    : impl_(std::make_unique<Impl>()) {
  CHECK(params.Validate().has_value());
  impl_->penalized = params.repetition_penalty != 1.0f;
  impl_->greedy = params.temperature == 0.0f;
  impl_->chain.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) {
    llama_sampler_chain_add(impl_->chain.get(), sampler);
  };
  if (impl_->penalized) {
    add(llama_sampler_init_penalties(tokenizer.vocab_size(), kPenaltyWindow,
                                     params.repetition_penalty,
                                     /*penalty_freq=*/0.0f, /*penalty_present=*/0.0f));
  }
  if (impl_->greedy) {
    add(llama_sampler_init_greedy());
    return;
  }
  if (params.top_k > 0) add(llama_sampler_init_top_k(params.top_k));
  if (params.top_p < 1.0f) add(llama_sampler_init_top_p(params.top_p, /*min_keep=*/1));
  if (params.min_p > 0.0f) add(llama_sampler_init_min_p(params.min_p, /*min_keep=*/1));
  add(llama_sampler_init_temp(params.temperature));
  add(llama_sampler_init_dist(FoldSeed(params.seed)));
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

Result<int32_t> Sampler::Sample(std::span<const float> logits) {
  CHECK(!logits.empty());
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]))
      return Fail(ErrorCode::kCorrupt, "logit {} of {} is not a number", i, logits.size());
    if (logits[i] > logits[best]) best = i;
  }
  if (!std::isfinite(logits[best]))
    return Fail(ErrorCode::kCorrupt, "the largest logit is {}", logits[best]);
  auto token = static_cast<int32_t>(best);
  if (!impl_->greedy || impl_->penalized) {
    impl_->candidates.resize(logits.size());
    for (size_t i = 0; i < logits.size(); ++i)
      impl_->candidates[i] = {static_cast<int32_t>(i), logits[i], 0.0f};
    llama_token_data_array array{impl_->candidates.data(), impl_->candidates.size(),
                                 /*selected=*/-1, /*sorted=*/false};
    llama_sampler_apply(impl_->chain.get(), &array);
    CHECK_GE(array.selected, 0);
    CHECK_LT(static_cast<size_t>(array.selected), array.size);
    token = array.data[array.selected].id;
  }
  Accept(token);
  return token;
}

void Sampler::Accept(int32_t token) { llama_sampler_accept(impl_->chain.get(), token); }

}  // namespace turboquant
