// Small pieces around ggml's C interface. Only for model/.
#ifndef TURBOQUANT_MODEL_GGML_SUPPORT_H_
#define TURBOQUANT_MODEL_GGML_SUPPORT_H_

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <memory>
#include <string>

namespace turboquant {

struct GgmlDeleter {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend_buffer* buffer) const { ggml_backend_buffer_free(buffer); }
  void operator()(ggml_gallocr* allocator) const { ggml_gallocr_free(allocator); }
  void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
};
using GgmlContextPtr = std::unique_ptr<ggml_context, GgmlDeleter>;
using GgmlBufferPtr = std::unique_ptr<ggml_backend_buffer, GgmlDeleter>;
using GgmlAllocatorPtr = std::unique_ptr<ggml_gallocr, GgmlDeleter>;
using GgmlThreadPoolPtr = std::unique_ptr<ggml_threadpool, GgmlDeleter>;

// A context that holds up to num_tensors descriptions and no data.
GgmlContextPtr NewGgmlContext(size_t num_tensors, size_t extra_bytes = 0);

// Once per process, before any other call: log lines of ggml and libllama at level debug only, no
// debugger on ggml's abort.
void InitGgml();

// The last error line that they logged on this thread since ClearLastGgmlError: why a call gave
// null.
void ClearLastGgmlError();
std::string LastGgmlError();

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_GGML_SUPPORT_H_
