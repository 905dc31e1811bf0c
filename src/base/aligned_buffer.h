// Owning array of n trivial elements, 64-byte aligned and zeroed. Its allocation is padded to whole
// cache lines.
#ifndef TURBOQUANT_BASE_ALIGNED_BUFFER_H_
#define TURBOQUANT_BASE_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace turboquant {

inline constexpr size_t kCacheLineBytes = 64;

template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc when memory runs out.
  explicit AlignedBuffer(size_t size) : size_(size) {
    if (size == 0) return;
    CHECK_LE(size, (SIZE_MAX - kCacheLineBytes) / sizeof(T));
    const size_t bytes =
        (size * sizeof(T) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
    data_ = static_cast<T*>(::operator new(bytes, std::align_val_t{kCacheLineBytes}));
    std::memset(static_cast<void*>(data_), 0, bytes);
  }
  ~AlignedBuffer() { ::operator delete(data_, std::align_val_t{kCacheLineBytes}); }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }
  T& operator[](size_t i) {
    DCHECK_LT(i, size_);
    return data_[i];
  }
  const T& operator[](size_t i) const {
    DCHECK_LT(i, size_);
    return data_[i];
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_ALIGNED_BUFFER_H_
