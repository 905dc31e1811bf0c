// Counters of the server in Prometheus' text format. Names end as vLLM's do (num_requests_running,
// kv_cache_usage_perc, time_to_first_token_seconds, ...), so that its dashboards need one prefix
// changed. For one thread.
#ifndef TURBOQUANT_SERVER_METRICS_H_
#define TURBOQUANT_SERVER_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

#include "engine/engine.h"

namespace turboquant::server {

class ServerMetrics {
 public:
  explicit ServerMetrics(const std::string& model_name);

  // A request that has ended for whatever reason.
  void CountFinished(FinishReason reason, const RequestStats& stats);
  // A call that was refused or failed, by HTTP status.
  void CountRefused(int status);
  // The text, with the gauges as of `stats`.
  std::string Text(const EngineStats& stats);

 private:
  using Labels = prometheus::Labels;
  prometheus::Gauge& MakeGauge(const std::string& name, const std::string& help);
  prometheus::Counter& MakeCounter(const std::string& name, const std::string& help);
  prometheus::Histogram& MakeHistogram(const std::string& name, const std::string& help,
                                       prometheus::Histogram::BucketBoundaries bounds);

  prometheus::Registry registry_;
  const Labels labels_;
  prometheus::Gauge &running_, &waiting_, &kept_, &cache_usage_, &cache_bytes_;
  prometheus::Counter &preemptions_, &prompt_tokens_, &cached_tokens_, &generation_tokens_;
  prometheus::Family<prometheus::Counter>&finished_, &refused_;
  prometheus::Histogram &ttft_, &tpot_, &end_to_end_;
};

}  // namespace turboquant::server

#endif  // TURBOQUANT_SERVER_METRICS_H_
