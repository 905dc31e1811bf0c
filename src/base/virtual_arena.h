// Reserved address space that is committed from the front as it is needed, so that pointers into it
// never move and memory that is never used is never charged. Not thread-safe to grow; committed
// bytes may be used by many threads.
#ifndef TURBOQUANT_BASE_VIRTUAL_ARENA_H_
#define TURBOQUANT_BASE_VIRTUAL_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "base/error.h"

namespace turboquant {

class VirtualArena {
 public:
  // Byte that Poison writes: as f16 or f32 it reads as NaN, so that a stale scale or value shows at
  // once.
  static constexpr uint8_t kPoisonByte = 0xFF;

  VirtualArena() = default;
  // Reserves at least `bytes` of address space, rounded up to pages; no memory yet. kOutOfMemory if
  // that cannot be had.
  static Result<VirtualArena> Reserve(size_t bytes);
  ~VirtualArena();
  VirtualArena(VirtualArena&& other) noexcept;
  VirtualArena& operator=(VirtualArena&& other) noexcept;
  VirtualArena(const VirtualArena&) = delete;
  VirtualArena& operator=(const VirtualArena&) = delete;

  // Makes the first `bytes` (at most reserved()) readable and writable; new pages read as zero.
  // kOutOfMemory if the system refuses; what was committed before stays so.
  [[nodiscard]] Status EnsureCommitted(size_t bytes);
  // Fills committed bytes [offset, offset + bytes) with kPoisonByte.
  void Poison(size_t offset, size_t bytes);

  uint8_t* data() const { return data_; }  // page-aligned
  size_t committed() const { return committed_; }
  size_t reserved() const { return reserved_; }

 private:
  uint8_t* data_ = nullptr;
  size_t reserved_ = 0;
  size_t committed_ = 0;
};

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_VIRTUAL_ARENA_H_
