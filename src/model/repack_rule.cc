#include "model/repack_rule.h"

#include <string_view>

namespace turboquant {

ggml_backend_buffer_type_t RepackBufferType() {
  const ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  const auto get_extra = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  if (get_extra == nullptr) return nullptr;
  for (ggml_backend_buffer_type_t* type = get_extra(device); type != nullptr && *type != nullptr; ++type) {
    if (std::string_view(ggml_backend_buft_name(*type)) == "CPU_REPACK") return *type;
  }
  return nullptr;
}

// Asked of ggml with an empty buffer: putting a tensor there that it has no kernel for is a null dereference.
bool RepackIsPossible(ggml_type type, int64_t columns, int64_t rows) {
  const ggml_backend_buffer_type_t buffer_type = RepackBufferType();
  if (buffer_type == nullptr) return false;
  const GgmlBufferPtr buffer(ggml_backend_buft_alloc_buffer(buffer_type, 0));
  const GgmlContextPtr context = NewGgmlContext(3);
  ggml_tensor* matrix = ggml_new_tensor_2d(context.get(), type, columns, rows);
  matrix->buffer = buffer.get();
  const ggml_tensor* product =
      ggml_mul_mat(context.get(), matrix, ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, columns, 1));
  return ggml_backend_dev_supports_op(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), product);
}

bool RepackIsFaster(ggml_type type, int64_t columns, int64_t rows) {
  return type == GGML_TYPE_Q4_0 && RepackIsPossible(type, columns, rows);
}

}  // namespace turboquant
