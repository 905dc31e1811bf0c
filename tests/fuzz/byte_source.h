// Takes structured values from a fuzzer's bytes; when they run out, they are repeated, so that a
// short input still fills a tile with something other than zeros.
#ifndef TURBOQUANT_TESTS_FUZZ_BYTE_SOURCE_H_
#define TURBOQUANT_TESTS_FUZZ_BYTE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace turboquant {

class ByteSource {
 public:
  ByteSource(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t Byte() {
    if (size_ == 0) return 0;
    const uint8_t byte = data_[at_];
    if (++at_ == size_) {
      at_ = 0;
      done_ = true;
    }
    return byte;
  }
  template <typename Array>
  auto Pick(const Array& values) {
    return values[Byte() % values.size()];
  }
  // Every byte of `out`.
  template <typename T>
  void Fill(std::vector<T>& out) {
    auto* bytes = reinterpret_cast<uint8_t*>(out.data());
    for (size_t i = 0; i < out.size() * sizeof(T); ++i) bytes[i] = Byte();
  }
  // Up to the next newline, which is taken too; what is left if there is none. No repetition.
  std::string Line() {
    std::string line;
    while (!done()) {
      const char c = static_cast<char>(Byte());
      if (c == '\n') break;
      line += c;
    }
    return line;
  }
  bool done() const { return done_ || size_ == 0; }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
  bool done_ = false;  // every byte was taken once
};

}  // namespace turboquant

#endif  // TURBOQUANT_TESTS_FUZZ_BYTE_SOURCE_H_
