#include "model/repack_rule.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace turboquant {
namespace {

// Types that win in prefill and in decode, of those that our own kernels do not multiply
// (matmul_node.h: asked first). Measured with bench/weight_types.cc, one thread, prefill
// in GFLOP/s and decode in GB/s of weights, file layout -> repacked:
//             AMD Zen 3 (AVX2)            AMD Zen 5 (AVX-512, VNNI)
//   q4_0      47 -> 72    7.7 ->  9.5     128 -> 300   18 -> 26
//   iq4_nl    42 -> 74    8.4 -> 10.6     not measured
//   mxfp4     31 -> 74    8.0 ->  9.7     not measured
//   q4_K      88 -> 77    9.7 -> 10.6     504 -> 252   25 -> 28     no: loses in prefill
//   q2_K      no kernel                   not measured              no
// Others have no repacked kernel on x86. A repacked matrix is a copy in memory; the file's pages
// are given back.
constexpr std::array kRepackedTypes = {GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4};

}  // namespace

ggml_backend_buffer_type_t RepackBufferType() {
  const ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  const auto get_extra =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  if (get_extra == nullptr) return nullptr;
  for (ggml_backend_buffer_type_t* type = get_extra(device); type != nullptr && *type != nullptr;
       ++type) {
    if (std::string_view(ggml_backend_buft_name(*type)) == "CPU_REPACK") return *type;
  }
  return nullptr;
}

// Asked of ggml with an empty buffer: putting a tensor there that it has no kernel for is a null
// dereference.
bool RepackIsPossible(ggml_type type, int64_t columns, int64_t rows) {
  const ggml_backend_buffer_type_t buffer_type = RepackBufferType();
  if (buffer_type == nullptr) return false;
  const GgmlBufferPtr buffer(ggml_backend_buft_alloc_buffer(buffer_type, 0));
  const GgmlContextPtr context = NewGgmlContext(3);
  ggml_tensor* matrix = ggml_new_tensor_2d(context.get(), type, columns, rows);
  matrix->buffer = buffer.get();
  const ggml_tensor* product = ggml_mul_mat(
      context.get(), matrix, ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, columns, 1));
  return ggml_backend_dev_supports_op(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU),
                                      product);
}

bool RepackIsFaster(ggml_type type, int64_t columns, int64_t rows) {
  return std::ranges::find(kRepackedTypes, type) != kRepackedTypes.end() &&
         RepackIsPossible(type, columns, rows);
}

}  // namespace turboquant
