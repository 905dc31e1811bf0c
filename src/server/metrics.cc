#include "server/metrics.h"

#include <prometheus/text_serializer.h>

#include <string_view>

namespace turboquant::server {
namespace {

const std::string kPrefix = "turboquant:";

}  // namespace

ServerMetrics::ServerMetrics(const std::string& model_name)
    : labels_{{"model_name", model_name}},
      running_(MakeGauge("num_requests_running", "Requests whose tokens are being computed.")),
      waiting_(MakeGauge("num_requests_waiting", "Requests that wait for room.")),
      kept_(MakeGauge("num_caches_kept", "Finished requests whose cache a continuation may use.")),
      cache_usage_(MakeGauge("kv_cache_usage_perc",
                             "Share of the cache's blocks that running requests hold, 0 to 1.")),
      cache_bytes_(MakeGauge("kv_cache_used_bytes",
                             "Bytes of blocks, tails and first tokens that are held, kept ones"
                             " included.")),
      preemptions_(MakeCounter("num_preemptions_total",
                               "Times a request's blocks were taken for an older one.")),
      prompt_tokens_(MakeCounter("prompt_tokens_total", "Tokens of prompts.")),
      cached_tokens_(MakeCounter("prompt_tokens_cached_total",
                                 "Of these, taken from the cache of an earlier request.")),
      generation_tokens_(MakeCounter("generation_tokens_total", "Tokens generated.")),
      finished_(prometheus::BuildCounter()
                    .Name(kPrefix + "request_success_total")
                    .Help("Requests that ended, by reason.")
                    .Labels(labels_)
                    .Register(registry_)),
      refused_(prometheus::BuildCounter()
                   .Name(kPrefix + "request_refused_total")
                   .Help("Calls that were refused, by HTTP status.")
                   .Labels(labels_)
                   .Register(registry_)),
      ttft_(MakeHistogram("time_to_first_token_seconds", "From arrival to the first token.",
                          {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300})),
      tpot_(MakeHistogram("time_per_output_token_seconds",
                          "Mean of a request, over the tokens after its first.",
                          {0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5})),
      end_to_end_(MakeHistogram("e2e_request_latency_seconds", "From arrival to the last token.",
                                {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600})) {
  // A counter that is 0 and one that is not there yet are two things to an alert.
  for (const FinishReason reason : {FinishReason::kStop, FinishReason::kLength,
                                    FinishReason::kCancelled, FinishReason::kError}) {
    finished_.Add({{"finished_reason", std::string(Name(reason))}});
  }
}

prometheus::Gauge& ServerMetrics::MakeGauge(const std::string& name, const std::string& help) {
  return prometheus::BuildGauge()
      .Name(kPrefix + name)
      .Help(help)
      .Labels(labels_)
      .Register(registry_)
      .Add({});
}

prometheus::Counter& ServerMetrics::MakeCounter(const std::string& name, const std::string& help) {
  return prometheus::BuildCounter()
      .Name(kPrefix + name)
      .Help(help)
      .Labels(labels_)
      .Register(registry_)
      .Add({});
}

prometheus::Histogram& ServerMetrics::MakeHistogram(
    const std::string& name, const std::string& help,
    prometheus::Histogram::BucketBoundaries bounds) {
  return prometheus::BuildHistogram()
      .Name(kPrefix + name)
      .Help(help)
      .Labels(labels_)
      .Register(registry_)
      .Add({}, std::move(bounds));
}

void ServerMetrics::CountFinished(FinishReason reason, const RequestStats& stats) {
  finished_.Add({{"finished_reason", std::string(Name(reason))}}).Increment();
  prompt_tokens_.Increment(stats.prompt_tokens);
  cached_tokens_.Increment(stats.reused_tokens);
  generation_tokens_.Increment(stats.generated_tokens);
  if (stats.generated_tokens == 0) return;
  ttft_.Observe(stats.ttft_seconds);
  end_to_end_.Observe(stats.ttft_seconds + stats.decode_seconds);
  if (stats.generated_tokens > 1) {
    tpot_.Observe(stats.decode_seconds / (stats.generated_tokens - 1));
  }
}

void ServerMetrics::CountRefused(int status) {
  refused_.Add({{"status", std::to_string(status)}}).Increment();
}

std::string ServerMetrics::Text(const EngineStats& stats) {
  running_.Set(stats.num_running);
  waiting_.Set(stats.num_waiting);
  kept_.Set(stats.num_kept);
  const int held = stats.kv.num_blocks - stats.kv.num_free_blocks - stats.kept_blocks;
  cache_usage_.Set(static_cast<double>(held) / stats.kv.num_blocks);
  cache_bytes_.Set(static_cast<double>(stats.kv.block_bytes_used + stats.kv.sequence_bytes_used));
  // A counter only grows: by what came since the last call.
  preemptions_.Increment(static_cast<double>(stats.preemptions) - preemptions_.Value());
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace turboquant::server
