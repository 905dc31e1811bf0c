#include "model/deep_stack.h"

#include <pthread.h>

#include "base/check.h"

namespace turboquant {
namespace {

void* Call(void* work) {
  (*static_cast<const std::function<void()>*>(work))();
  return nullptr;
}

}  // namespace

void RunOnDeepStack(size_t bytes, const std::function<void()>& work) {
  constexpr size_t kPage = 4096;
  pthread_attr_t attributes;
  CHECK_EQ(pthread_attr_init(&attributes), 0);
  pthread_t thread;
  const bool started =
      pthread_attr_setstacksize(&attributes, (bytes + kPage - 1) / kPage * kPage) == 0 &&
      pthread_create(&thread, &attributes, Call, const_cast<std::function<void()>*>(&work)) == 0;
  pthread_attr_destroy(&attributes);
  if (started) {
    CHECK_EQ(pthread_join(thread, nullptr), 0);
  } else {
    work();
  }
}

}  // namespace turboquant
