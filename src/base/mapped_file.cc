#include "base/mapped_file.h"

#include <sys/mman.h>

#include <utility>

#include "base/file.h"

namespace turboquant {

Result<MappedFile> MappedFile::Open(const std::string& path) {
  TQ_ASSIGN_OR_RETURN(const FileDescriptor file, OpenForReading(path));
  if (file.size() == 0) return MappedFile(path, nullptr, 0);
  void* data = ::mmap(nullptr, file.size(), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) return FailWithErrno(path, "cannot map");
  return MappedFile(path, static_cast<const uint8_t*>(data), file.size());
}

MappedFile::MappedFile(std::string path, const uint8_t* data, size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace turboquant
