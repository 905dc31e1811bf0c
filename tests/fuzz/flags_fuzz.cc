// Any text as a size, cache format, layer override, command line or configuration file: accepted or
// refused with a message, nothing else. The first byte chooses; lines are separate arguments.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "cli/config_file.h"
#include "cli/verbs.h"
#include "codec/kv_cache_spec.h"
#include "planner/cache_plan.h"
#include "tests/fuzz/byte_source.h"

namespace turboquant {
namespace {

void CheckError(const Error& error) { CHECK(!error.message.empty()); }

void Size(ByteSource& in) {
  const auto size = ParseSize(in.Line());
  if (!size) return CheckError(size.error());
  CHECK_LE(*size, uint64_t{1} << 63);
  CHECK(!FormatBytes(*size).empty());
}

void Format(ByteSource& in) {
  const int head_dim = 16 * (1 + in.Byte() % 40);
  const std::string dtype = in.Line(), granularity = in.Line(), transform = in.Line();
  std::vector<std::string> notes;
  const auto sides = ParseKvFormat(dtype, granularity, transform, &notes);
  if (!sides) return CheckError(sides.error());
  const KvCacheSpec spec = {
      .k = sides->k, .v = sides->v, .num_kv_heads = 2, .head_dim = head_dim, .block_size = 64};
  if (const Status valid = spec.Validate(); !valid) return CheckError(valid.error());
  CHECK_GT(spec.BytesPerBlock(), 0u);
  CHECK_EQ(spec.BytesPerBlock() % 64, 0u);
  CHECK(spec.BitsPerValue() > 2 && spec.BitsPerValue() <= 40);
  CHECK(!spec.ToString().empty());
}

int Int(ByteSource& in) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | in.Byte();
  return static_cast<int>(value >> (in.Byte() % 32));
}
uint64_t Bytes(ByteSource& in) {
  return (static_cast<uint64_t>(Int(in)) & 0x7fffffff) << (in.Byte() % 33);
}

void Plan(ByteSource& in) {
  ModelConfig model;
  model.num_layers = 1 + in.Byte() % 64;
  model.num_kv_heads = 1 + in.Byte() % 8;
  model.num_heads = model.num_kv_heads * (1 + in.Byte() % 4);
  model.head_dim = 16 * (1 + in.Byte() % 16);
  model.max_context = Int(in);
  CachePlanOptions options;
  options.block_size = in.Byte() % 4 == 0 ? Int(in) : 16 << (in.Byte() % 5);
  options.num_sink_tokens = in.Byte() % 4 == 0 ? Int(in) : 4;
  options.num_recent_tokens = in.Byte() % 4 == 0 ? Int(in) : 0;
  options.max_num_seqs = in.Byte() % 2 == 0 ? Int(in) : 1;
  options.max_model_len = in.Byte() % 2 == 0 ? Int(in) : 0;
  if (in.Byte() % 2 == 0) options.kv_cache_memory = Bytes(in);
  options.memory_utilization = in.Byte() / 200.0;
  const MemoryBudget memory = {Bytes(in), Bytes(in)};
  options.kv_cache_dtype_layers = in.Line();
  options.kv_scale_granularity = in.Line();
  if (const std::string dtype = in.Line(); !dtype.empty()) options.kv_cache_dtype = dtype;
  options.kv_transform = in.Line();
  const auto plan = PlanCache(model, options, memory);
  if (!plan) return CheckError(plan.error());
  CHECK_EQ(plan->config.layers.size(), static_cast<size_t>(model.num_layers));
  CHECK_GT(plan->config.num_blocks, 0);
  CHECK_GT(plan->max_model_len, 0);
  CHECK_EQ(plan->pool_bytes, plan->block_bytes * static_cast<uint64_t>(plan->config.num_blocks));
  CHECK_LE(plan->pool_bytes + plan->sequence_bytes, memory.usable_bytes);
}

void Arguments(ByteSource& in) {
  std::vector<std::string> arguments = {"turboquant"};
  while (!in.done() && arguments.size() < 64) arguments.push_back(in.Line());
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  cli::FindConfigPath(static_cast<int>(argv.size()), argv.data());
  const cli::CommandLine line = cli::MakeCommandLine();
  try {
    line.program->parse(static_cast<int>(argv.size()), argv.data());
  } catch (const CLI::ParseError& error) {
    CHECK(error.what() != nullptr);
  }
}

void ConfigFile(ByteSource& in) {
  std::string content;
  while (!in.done()) content += in.Line() + "\n";
  const int fd = memfd_create("config", 0);
  CHECK_EQ(write(fd, content.data(), content.size()), static_cast<ssize_t>(content.size()));
  const cli::CommandLine line = cli::MakeCommandLine();
  const Status status = cli::ApplyConfigFile(fmt::format("/proc/self/fd/{}", fd), line);
  close(fd);
  if (!status) CheckError(status.error());
}

}  // namespace
}  // namespace turboquant

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turboquant;
  ByteSource in(data, size);
  switch (in.Byte()) {
    case 'S':
      Size(in);
      break;
    case 'F':
      Format(in);
      break;
    case 'P':
      Plan(in);
      break;
    case 'C':
      ConfigFile(in);
      break;
    default:
      Arguments(in);
      break;
  }
  return 0;
}
