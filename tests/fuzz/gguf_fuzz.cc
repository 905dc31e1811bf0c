// Any bytes as a model file. Refused: with one line. Accepted by Gguf::Parse: ggml's reader accepts
// them too. Accepted by all checks: the model loads, its tokenizer takes any text, and the graph
// runs, without an abort or exception of ggml or libllama. Half of the mutations change a key or
// tensor of a well-formed file and write it anew, because random bytes rarely keep the offsets
// consistent.
#include <ggml.h>
#include <gguf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>

#include "base/check.h"
#include "model/gguf.h"
#include "model/gguf_test_util.h"
#include "model/hyperparameters.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "tests/oracle/runs.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace turboquant {
namespace {

constexpr uint64_t kMaxRunnableValues = 1 << 20;  // larger models only cost time

void CheckMessage(const Error& error) {
  CHECK(error.message.starts_with("fuzz"));
  CHECK_EQ(error.message.find('\n'), std::string::npos);
  CHECK_LT(error.message.size(), 1000u);
}

void CheckGgmlAccepts(std::span<const uint8_t> bytes) {
  ggml_context* context = nullptr;
  gguf_context* gguf =
      gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = &context});
  CHECK(gguf != nullptr);
  ggml_free(context);
  gguf_free(gguf);
}

// Every byte that a view of the file promises can be read; the sum keeps the reads.
uint64_t TouchAll(const Gguf& file) {
  uint64_t sum = 0;
  for (const GgufEntry& entry : file.metadata()) {
    if (const auto* array = std::get_if<GgufArray>(&entry.value)) {
      for (uint64_t i = 0; i < array->size(); ++i) {
        if (array->is_integer()) sum += static_cast<uint64_t>(array->Integer(i));
        if (array->is_float()) sum += array->Float(i) > 0;
        if (array->element_type == GgufType::kString)
          sum += PrintableText(array->strings[i]).size();
      }
    }
    if (const auto* text = std::get_if<std::string_view>(&entry.value))
      sum += PrintableText(*text).size();
  }
  for (const GgufTensor& tensor : file.tensors()) {
    for (const uint8_t byte : file.Data(tensor)) sum += byte;
  }
  return sum;
}

// The file under a path, as libllama wants it.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const uint8_t> bytes) : fd_(memfd_create("fuzz", 0)) {
    CHECK_EQ(write(fd_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { close(fd_); }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_;
};

void UseTokenizer(const Tokenizer& tokenizer) {
  for (const bool special : {false, true}) {
    for (const std::string_view text :
         {std::string_view(""), std::string_view("The 12 caf\xc3\xa9s\n\n \xe4\xb8\xad<|im_end|>"),
          std::string_view("\xff\x80 \0 x", 6)}) {
      const std::vector<int32_t> tokens = tokenizer.Encode(text, /*add_special=*/true, special);
      for (const int32_t token : tokens) {
        CHECK_GE(token, 0);
        CHECK_LT(token, tokenizer.vocab_size());
        tokenizer.TokenToBytes(token, special);
        tokenizer.IsEndOfGeneration(token);
      }
      tokenizer.Decode(tokens);
    }
  }
  if (tokenizer.has_chat_template()) {
    const ChatMessage message = {"user", "x"};
    (void)tokenizer.ApplyChatTemplate({&message, 1}, true);
  }
}

void RunModel(std::span<const uint8_t> bytes) {
  const MemoryFile memory(bytes);
  auto model = Model::Load({.path = memory.path()});
  if (!model) return;  // libllama does not know the pre-tokenizer, say
  UseTokenizer((*model)->tokenizer());
  if ((*model)->config().num_parameters > kMaxRunnableValues) return;
  OurRun run({.model = *model,
              .kv_cache_dtype = "f16",
              .max_context = 64,
              .max_batch_tokens = 16,
              .num_threads = 1});
  std::vector<float> logits;
  const int32_t last = (*model)->config().vocab_size - 1;
  run.Feed(std::array{0, last, last / 2}, &logits);
  run.Feed(std::array{last}, &logits);
}

// Well-formed bytes of what `file` says, for a builder to change.
GgufBuilder ToBuilder(const Gguf& file) {
  GgufBuilder b;
  b.version = file.version();
  b.alignment = file.alignment();
  for (const GgufEntry& entry : file.metadata()) {
    // The bytes between the key and the next one are the type and the value; views tell where they
    // are.
    ByteWriter w;
    if (const auto* array = std::get_if<GgufArray>(&entry.value)) {
      w.Number(static_cast<uint32_t>(array->element_type));
      w.Number(array->count);
      w.Append(array->raw);
      for (const std::string_view text : array->strings) w.String(text);
    } else if (const auto* text = std::get_if<std::string_view>(&entry.value)) {
      w.String(*text);
    } else {
      // A number: wide enough in the file right behind its key and type.
      const auto* value =
          reinterpret_cast<const uint8_t*>(entry.key.data() + entry.key.size() + sizeof(uint32_t));
      const size_t size = entry.type == GgufType::kBool || entry.type <= GgufType::kI8 ? 1
                          : entry.type <= GgufType::kI16                               ? 2
                          : entry.type <= GgufType::kF32                               ? 4
                                                                                       : 8;
      w.Append({value, size});
    }
    b.SetRaw(entry.key, entry.type, std::move(w.bytes()));
  }
  for (const GgufTensor& tensor : file.tensors())
    b.Tensor(tensor.name, tensor.shape, tensor.ggml_type);
  return b;
}

constexpr std::array<uint32_t, 16> kNumbers = {
    0, 1, 2, 3, 4, 7, 8, 16, 31, 32, 64, 127, 1000, 0x7fffffff, 0x80000000, 0xffffffff};
constexpr std::array<float, 10> kFloats = {
    0.0f, -0.0f, 1e-6f, 1.0f, -1.0f, 1e30f, 1e-42f, 10000.0f, __builtin_nanf(""), __builtin_inff()};

void MutateKey(const Gguf& file, std::minstd_rand& random, GgufBuilder* b) {
  if (file.metadata().empty()) return;
  const GgufEntry& entry = file.metadata()[random() % file.metadata().size()];
  const std::string key(entry.key);
  switch (random() % 6) {
    case 0:
      b->Erase(key);
      break;
    case 1:
      b->U32(key, kNumbers[random() % kNumbers.size()]);
      break;
    case 2:
      b->F32(key, kFloats[random() % kFloats.size()]);
      break;
    case 3:
      b->Bool(key, random() % 2 != 0);
      break;
    case 4:
      b->String(key, std::string(random() % 8, static_cast<char>(random() % 256)));
      break;
    default:
      if (const auto* array = std::get_if<GgufArray>(&entry.value);
          array != nullptr && !array->strings.empty()) {
        std::vector<std::string> texts(array->strings.begin(), array->strings.end());
        std::string& text = texts[random() % texts.size()];
        text.resize(text.size() + 8);
        text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), text.size() - 8,
                                     text.size()));
        b->Strings(key, texts);
      } else {
        b->Array<int32_t>(key, GgufType::kI32,
                          std::vector<int32_t>(random() % 5, static_cast<int32_t>(random() % 8)));
      }
  }
}

void MutateTensor(std::minstd_rand& random, GgufBuilder* b) {
  if (b->tensors.empty()) return;
  const size_t index = random() % b->tensors.size();
  GgufBuilder::TensorEntry& tensor = b->tensors[index];
  constexpr std::array<uint32_t, 8> kTypes = {0, 1, 2, 8, 12, 30, 26, 41};
  switch (random() % 5) {
    case 0:
      tensor.type = kTypes[random() % kTypes.size()];
      break;
    case 1:
      tensor.shape[random() % tensor.shape.size()] = kNumbers[random() % kNumbers.size()];
      break;
    case 2:
      std::swap(tensor.name, b->tensors[random() % b->tensors.size()].name);
      break;
    case 3:
      b->tensors.erase(b->tensors.begin() + static_cast<ptrdiff_t>(index));
      break;
    default:
      b->Tensor("rope_freqs.weight", {random() % 16 + 1});
      break;
  }
}

}  // namespace
}  // namespace turboquant

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turboquant;
  const std::span<const uint8_t> bytes(data, size);
  const auto file = Gguf::Parse(bytes, "fuzz");
  if (!file) {
    CheckMessage(file.error());
    return 0;
  }
  CheckGgmlAccepts(bytes);
  TouchAll(*file);
  const auto config = ReadHyperparameters(*file);
  if (!config) {
    CheckMessage(config.error());
    return 0;
  }
  if (const Status tensors = CheckTensors(*file, *config); !tensors) {
    CheckMessage(tensors.error());
    return 0;
  }
  RunModel(bytes);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  using namespace turboquant;
  std::minstd_rand random(seed);
  random.discard(3);  // the first numbers of neighbouring seeds are alike
  if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const auto file = Gguf::Parse({data, size}, "fuzz");
  if (!file) return LLVMFuzzerMutate(data, size, max_size);
  GgufBuilder builder = ToBuilder(*file);
  for (uint32_t i = 0; i <= random() % 2; ++i) {
    if (random() % 3 == 0) {
      MutateTensor(random, &builder);
    } else {
      MutateKey(*file, random, &builder);
    }
  }
  const std::vector<uint8_t> bytes = builder.Build(static_cast<uint8_t>(random() % 256));
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
