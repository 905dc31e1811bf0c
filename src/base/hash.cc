#include "base/hash.h"

#include <fmt/core.h>
#include <xxhash.h>

namespace turboquant {

struct Hasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh); }
Hasher::~Hasher() = default;

void Hasher::Add(std::span<const uint8_t> bytes) {
  AddNumber(bytes.size());
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void Hasher::Add(std::string_view text) {
  Add(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

void Hasher::AddNumber(uint64_t number) {
  AddNumber32(static_cast<uint32_t>(number));
  AddNumber32(static_cast<uint32_t>(number >> 32));
}

void Hasher::AddNumber32(uint32_t number) {
  uint8_t bytes[4];
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(number >> (8 * i));
  XXH3_128bits_update(state_->xxh, bytes, sizeof(bytes));
}

Hasher::Digest Hasher::Value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {.low = hash.low64, .high = hash.high64};
}

std::string Hasher::Hex() const {
  const Digest digest = Value();
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

}  // namespace turboquant
