// XXH3 with 128 bits (xxHash) over fields: the same on every machine, so that a name may be written
// to a file. Not a defence against chosen collisions.
#ifndef TURBOQUANT_BASE_HASH_H_
#define TURBOQUANT_BASE_HASH_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace turboquant {

class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  // With their length, so that neighbouring fields cannot run together.
  void Add(std::span<const uint8_t> bytes);
  void Add(std::string_view text);
  void AddNumber(uint64_t number);  // as little-endian bytes
  void AddNumber32(uint32_t number);
  struct Digest {
    uint64_t low, high;
  };
  Digest Value() const;     // of all that was added
  std::string Hex() const;  // the same, 32 digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_BASE_HASH_H_
