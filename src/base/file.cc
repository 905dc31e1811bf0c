#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace turboquant {
namespace {

bool WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// mkstemp makes the file private to its owner; give it the mode that a plain creat would.
bool SetDefaultMode(int fd) {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return ::fchmod(fd, 0644 & ~mask) == 0;
}

// The rename itself must reach the disk too.
void SyncDirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string dir = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), size_(std::exchange(other.size_, 0)) {}

std::unexpected<Error> FailWithErrno(const std::string& path, std::string_view what) {
  const int error = errno;
  return Fail(error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}: {}", path, what,
              std::generic_category().message(error));
}

Result<FileDescriptor> OpenForReading(const std::string& path) {
  // O_NONBLOCK: a pipe without a writer must be refused below, not waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FailWithErrno(path, "cannot open");
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    auto failure = FailWithErrno(path, "cannot stat");
    ::close(fd);
    return failure;
  }
  FileDescriptor file(fd, static_cast<size_t>(info.st_size));
  if (S_ISDIR(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "{}: is a directory, not a file", path);
  }
  if (!S_ISREG(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "{}: is not a regular file", path);
  }
  return file;
}

Result<std::string> ReadFile(const std::string& path) {
  TQ_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(path));
  std::string content(file.size(), '\0');
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0) {
      if (errno == EINTR) continue;
      return FailWithErrno(path, "cannot read");
    }
    if (got == 0) break;  // shortened meanwhile
    done += static_cast<size_t>(got);
  }
  content.resize(done);
  return content;
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return FailWithErrno(path, "cannot create a file beside it");
  const bool written = WriteAll(fd, content) && SetDefaultMode(fd) && ::fsync(fd) == 0;
  const int write_error = errno;
  const bool closed = ::close(fd) == 0;
  if (!written) errno = write_error;
  if (!written || !closed || ::rename(temporary.c_str(), path.c_str()) != 0) {
    auto failure = FailWithErrno(path, "cannot write");
    ::unlink(temporary.c_str());
    return failure;
  }
  SyncDirectoryOf(path);
  return {};
}

}  // namespace turboquant
