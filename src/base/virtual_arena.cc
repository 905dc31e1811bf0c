#include "base/virtual_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace turboquant {
namespace {

size_t PageBytes() {
  static const size_t page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return page_bytes;
}

size_t RoundUpToPages(size_t bytes) {
  return (bytes + PageBytes() - 1) / PageBytes() * PageBytes();
}

}  // namespace

Result<VirtualArena> VirtualArena::Reserve(size_t bytes) {
  VirtualArena arena;
  if (bytes == 0) return arena;
  if (bytes > SIZE_MAX - PageBytes()) {
    return Fail(ErrorCode::kOutOfMemory, "cannot reserve {} bytes of address space", bytes);
  }
  const size_t rounded = RoundUpToPages(bytes);
  void* data =
      ::mmap(nullptr, rounded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return Fail(ErrorCode::kOutOfMemory, "cannot reserve {} of address space: {}",
                FormatBytes(rounded), std::generic_category().message(errno));
  }
  arena.data_ = static_cast<uint8_t*>(data);
  arena.reserved_ = rounded;
  return arena;
}

VirtualArena::~VirtualArena() {
  if (data_ != nullptr) ::munmap(data_, reserved_);
}

VirtualArena::VirtualArena(VirtualArena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      reserved_(std::exchange(other.reserved_, 0)),
      committed_(std::exchange(other.committed_, 0)) {}

VirtualArena& VirtualArena::operator=(VirtualArena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(reserved_, other.reserved_);
  std::swap(committed_, other.committed_);
  return *this;
}

Status VirtualArena::EnsureCommitted(size_t bytes) {
  CHECK_LE(bytes, reserved_);
  if (bytes <= committed_) return {};
  const size_t target = RoundUpToPages(bytes);
  if (::mprotect(data_ + committed_, target - committed_, PROT_READ | PROT_WRITE) != 0) {
    return Fail(ErrorCode::kOutOfMemory, "cannot commit {} more memory (holds {}): {}",
                FormatBytes(target - committed_), FormatBytes(committed_),
                std::generic_category().message(errno));
  }
  committed_ = target;
  return {};
}

void VirtualArena::Poison(size_t offset, size_t bytes) {
  CHECK_LE(offset, committed_);
  CHECK_LE(bytes, committed_ - offset);
  if (bytes > 0) std::memset(data_ + offset, kPoisonByte, bytes);
}

}  // namespace turboquant
