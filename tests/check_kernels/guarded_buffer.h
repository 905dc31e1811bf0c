// Memory that notices what a kernel must not do: the page after it cannot be touched, a pattern
// lies around it.
#ifndef TURBOQUANT_TESTS_CHECK_KERNELS_GUARDED_BUFFER_H_
#define TURBOQUANT_TESTS_CHECK_KERNELS_GUARDED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace turboquant::check {

class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t max_bytes);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  // Room for `bytes` that ends `slack` bytes before a page that faults, everything filled with the
  // pattern.
  uint8_t* Place(size_t bytes, size_t slack);
  template <typename T>
  T* PlaceArray(size_t count, size_t slack_elements = 0) {
    return reinterpret_cast<T*>(Place(count * sizeof(T), slack_elements * sizeof(T)));
  }

  // Whether the bytes before and after the last placed room still hold the pattern.
  bool GuardsIntact() const;
  static constexpr uint8_t kPattern = 0xA5;

 private:
  static constexpr size_t kFrontGuard = 256;
  uint8_t* mapping_;
  size_t mapped_bytes_;  // without the page that faults
  size_t page_bytes_;
  uint8_t* begin_ = nullptr;
  size_t bytes_ = 0, slack_ = 0;
};

// What runs now; printed if the process dies of a signal (a guard page, an illegal instruction).
void InstallCrashReport();
void SetCrashContext(const std::string& text);

}  // namespace turboquant::check

#endif  // TURBOQUANT_TESTS_CHECK_KERNELS_GUARDED_BUFFER_H_
