// Runs code that recurses as deep as its input is long.
#ifndef TURBOQUANT_MODEL_DEEP_STACK_H_
#define TURBOQUANT_MODEL_DEEP_STACK_H_

#include <cstddef>
#include <functional>

namespace turboquant {

// Calls `work` on a thread of its own with a stack of `bytes` (address space; memory only as deep
// as it is used) and waits for it. If no such thread can be had, `work` runs on this stack. `work`
// must not throw.
void RunOnDeepStack(size_t bytes, const std::function<void()>& work);

}  // namespace turboquant

#endif  // TURBOQUANT_MODEL_DEEP_STACK_H_
