#include "guarded_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "base/check.h"

namespace turboquant::check {
namespace {

std::array<char, 512> crash_context = {};

// Only async-signal-safe calls.
void ReportCrash(int signal) {
  const char* name = signal == SIGILL ? "illegal instruction" : "memory fault";
  const auto write_text = [](const char* text) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) _exit(3);
  };
  write_text("FAILED: ");
  write_text(name);
  write_text(" in ");
  write_text(crash_context.data());
  write_text("\n");
  _exit(1);
}

}  // namespace

GuardedBuffer::GuardedBuffer(size_t max_bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapped_bytes_ = (max_bytes + 2 * kFrontGuard + page - 1) / page * page;
  void* memory = mmap(nullptr, mapped_bytes_ + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  mapping_ = static_cast<uint8_t*>(memory);
  CHECK_EQ(mprotect(mapping_ + mapped_bytes_, page, PROT_NONE), 0);
  page_bytes_ = page;
}

GuardedBuffer::~GuardedBuffer() { munmap(mapping_, mapped_bytes_ + page_bytes_); }

uint8_t* GuardedBuffer::Place(size_t bytes, size_t slack) {
  CHECK_LE(bytes + slack + kFrontGuard, mapped_bytes_);
  bytes_ = bytes;
  slack_ = slack;
  begin_ = mapping_ + mapped_bytes_ - slack - bytes;
  std::memset(begin_ - kFrontGuard, kPattern, kFrontGuard + bytes + slack);
  return begin_;
}

bool GuardedBuffer::GuardsIntact() const {
  const auto is_pattern = [](uint8_t byte) { return byte == kPattern; };
  return std::all_of(begin_ - kFrontGuard, begin_, is_pattern) &&
         std::all_of(begin_ + bytes_, begin_ + bytes_ + slack_, is_pattern);
}

void InstallCrashReport() {
  struct sigaction action = {};
  action.sa_handler = ReportCrash;
  for (int signal : {SIGSEGV, SIGBUS, SIGILL}) sigaction(signal, &action, nullptr);
}

void SetCrashContext(const std::string& text) {
  const size_t n = std::min(text.size(), crash_context.size() - 1);
  std::memcpy(crash_context.data(), text.data(), n);
  crash_context[n] = '\0';
}

}  // namespace turboquant::check
