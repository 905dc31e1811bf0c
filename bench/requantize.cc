// A copy of a GGUF file with its matrices in another type, by libllama's quantizer: what speed
// comparisons across weight types need.
//   requantize IN.gguf OUT.gguf q4_0|q4_1|q8_0|q4_k_m
#include <fmt/core.h>
#include <llama.h>

#include <map>
#include <string>

int main(int argc, char** argv) {
  const std::map<std::string, llama_ftype> types = {{"q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
                                                    {"q4_1", LLAMA_FTYPE_MOSTLY_Q4_1},
                                                    {"q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
                                                    {"q4_k_m", LLAMA_FTYPE_MOSTLY_Q4_K_M}};
  if (argc != 4 || !types.contains(argv[3])) {
    fmt::print(stderr, "requantize IN.gguf OUT.gguf q4_0|q4_1|q8_0|q4_k_m\n");
    return 2;
  }
  llama_backend_init();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = types.at(argv[3]);
  params.allow_requantize = true;
  return llama_model_quantize(argv[1], argv[2], &params) == 0 ? 0 : 1;
}
