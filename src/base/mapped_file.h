// A regular file mapped read-only into memory. Pages are read when first touched.
#ifndef TURBOQUANT_BASE_MAPPED_FILE_H_
#define TURBOQUANT_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

namespace turboquant {

// Immutable after Open; bytes() may be read by many threads. The mapping moves with the object:
// spans stay valid as long as whoever owns it now is alive. A file that another process shortens
// meanwhile raises SIGBUS on access.
class MappedFile {
 public:
  // kNotFound, kInvalidArgument (a directory or device) or kIo (no permission, ...). An empty file
  // gives an empty span.
  static Result<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size);

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_MAPPED_FILE_H_
