// Whole files: read, and written so that a reader or a crash never sees half of one.
#ifndef TURBOQUANT_BASE_FILE_H_
#define TURBOQUANT_BASE_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"

namespace turboquant {

// Owns an open file descriptor of a regular file.
class FileDescriptor {
 public:
  FileDescriptor(int fd, size_t size) : fd_(fd), size_(size) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  size_t size() const { return size_; }  // when it was opened

 private:
  int fd_;
  size_t size_;
};

// kNotFound if it does not exist, kInvalidArgument if it is a directory or device, kIo otherwise.
Result<FileDescriptor> OpenForReading(const std::string& path);

Result<std::string> ReadFile(const std::string& path);

// Replaces `path`: writes a temporary file beside it, syncs it to disk, renames it. On failure
// nothing is left behind and what stood at `path` is untouched. A new file gets the mode 0644 less
// the umask.
[[nodiscard]] Status WriteFileAtomically(const std::string& path, std::string_view content);

// An error of the operating system: "PATH: WHAT: No such file or directory", kNotFound for ENOENT,
// else kIo.
[[nodiscard]] std::unexpected<Error> FailWithErrno(const std::string& path, std::string_view what);

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_FILE_H_
