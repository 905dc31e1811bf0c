// Equal slots side by side in one VirtualArena, committed when they are first used. Who uses which
// slot is the caller's business. With TURBOQUANT_POISON_FREED a retired slot is filled with
// VirtualArena::kPoisonByte and, under AddressSanitizer, must not be touched. Not thread-safe.
#ifndef TURBOQUANT_CACHE_SLOT_ARENA_H_
#define TURBOQUANT_CACHE_SLOT_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "base/virtual_arena.h"

#if defined(__SANITIZE_ADDRESS__)
#define TQ_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TQ_ADDRESS_SANITIZER 1
#endif
#endif

namespace turboquant {

class SlotArena {
 public:
#ifdef TURBOQUANT_POISON_FREED
  static constexpr bool kPoisonsRetired = true;
#else
  static constexpr bool kPoisonsRetired = false;
#endif
#ifdef TQ_ADDRESS_SANITIZER
  static constexpr bool kTrapsRetired = kPoisonsRetired;
#else
  static constexpr bool kTrapsRetired = false;
#endif

  SlotArena() = default;
  static Result<SlotArena> Reserve(int num_slots, size_t bytes_per_slot);
  ~SlotArena();
  SlotArena(SlotArena&&) noexcept = default;
  SlotArena& operator=(SlotArena&&) noexcept = default;

  // Makes the slot usable; its bytes are whatever was there. kOutOfMemory if the system gives no
  // pages.
  [[nodiscard]] Status Acquire(int slot);
  void Retire(int slot);

  uint8_t* data() const { return arena_.data(); }
  uint8_t* at(int slot) const {
    return arena_.data() + static_cast<size_t>(slot) * bytes_per_slot_;
  }
  size_t bytes_per_slot() const { return bytes_per_slot_; }
  size_t committed() const { return arena_.committed(); }  // rounded up to pages

 private:
  VirtualArena arena_;
  size_t bytes_per_slot_ = 0;
};

}  // namespace turboquant

#endif  // TURBOQUANT_CACHE_SLOT_ARENA_H_
