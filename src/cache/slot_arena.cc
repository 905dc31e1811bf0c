#include "cache/slot_arena.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

#ifdef TQ_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace turboquant {
namespace {

constexpr size_t kCommitStep = size_t{2} << 20;

void ForbidAccess([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t bytes) {
#ifdef TQ_ADDRESS_SANITIZER
  ASAN_POISON_MEMORY_REGION(data, bytes);
#endif
}

void AllowAccess([[maybe_unused]] const uint8_t* data, [[maybe_unused]] size_t bytes) {
#ifdef TQ_ADDRESS_SANITIZER
  ASAN_UNPOISON_MEMORY_REGION(data, bytes);
#endif
}

}  // namespace

Result<SlotArena> SlotArena::Reserve(int num_slots, size_t bytes_per_slot) {
  CHECK_GE(num_slots, 0);
  SlotArena arena;
  size_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(num_slots), bytes_per_slot, &bytes)) {
    return Fail(ErrorCode::kOutOfMemory, "{} slots of {} bytes are more than the address space",
                num_slots, bytes_per_slot);
  }
  TQ_ASSIGN_OR_RETURN(arena.arena_, VirtualArena::Reserve(bytes));
  arena.bytes_per_slot_ = bytes_per_slot;
  return arena;
}

// The address range may be mapped again by anyone after this.
SlotArena::~SlotArena() {
  if (kPoisonsRetired && arena_.data() != nullptr) AllowAccess(arena_.data(), arena_.committed());
}

// Pages are committed in large steps: committing is a system call, and a page that nobody touches
// costs no memory.
Status SlotArena::Acquire(int slot) {
  CHECK_GE(slot, 0);
  const size_t end = (static_cast<size_t>(slot) + 1) * bytes_per_slot_;
  if (end > arena_.committed()) {
    const size_t step = (end + kCommitStep - 1) / kCommitStep * kCommitStep;
    TQ_RETURN_IF_ERROR(arena_.EnsureCommitted(std::min(step, arena_.reserved())));
  }
  if (kPoisonsRetired) AllowAccess(at(slot), bytes_per_slot_);
  return {};
}

void SlotArena::Retire(int slot) {
  if (!kPoisonsRetired) return;
  arena_.Poison(static_cast<size_t>(slot) * bytes_per_slot_, bytes_per_slot_);
  ForbidAccess(at(slot), bytes_per_slot_);
}

}  // namespace turboquant
