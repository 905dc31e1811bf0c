#include "engine/scheduler.h"

#include <algorithm>
#include <ranges>

#include "base/check.h"

namespace turboquant {

Scheduler::Scheduler(KvCacheManager* cache, int max_batch_tokens)
    : cache_(cache), max_batch_tokens_(max_batch_tokens) {
  CHECK_GE(max_batch_tokens, cache->config().max_num_seqs);
}

void Scheduler::Add(RequestId id, int num_tokens, std::optional<RequestId> continue_from) {
  CHECK_GT(num_tokens, 0);
  CHECK(requests_.empty() || requests_.rbegin()->first < id);
  requests_.emplace(
      id, Entry{.num_tokens = num_tokens, .sequence = {}, .continue_from = continue_from});
}

void Scheduler::AppendToken(RequestId id) { ++requests_.at(id).num_tokens; }

void Scheduler::Finish(RequestId id, bool keep) {
  const auto it = requests_.find(id);
  CHECK(it != requests_.end());
  if (it->second.sequence) {
    const SequenceId sequence = *it->second.sequence;
    if (keep && cache_->NumTokens(sequence) > 0) {
      kept_.push_back({id, sequence});
    } else {
      cache_->Free(sequence);
    }
  }
  requests_.erase(it);
}

void Scheduler::Release(RequestId id) {
  const auto it = FindKept(id);
  if (it == kept_.end()) return;
  cache_->Free(it->sequence);
  kept_.erase(it);
}

SchedulerOutput Scheduler::Schedule() {
  budget_ = max_batch_tokens_;
  output_ = {};
  ScheduleRunning(/*decodes=*/true);
  ScheduleRunning(/*decodes=*/false);
  // What was just preempted would only come back to be preempted again.
  if (output_.preempted.empty()) AdmitWaiting();
  return std::move(output_);
}

void Scheduler::ScheduleRunning(bool decodes) {
  for (auto& [id, entry] : requests_) {
    if (!entry.sequence || cache_->NumReservedTokens(*entry.sequence) > 0) continue;
    const int remaining = entry.num_tokens - cache_->NumTokens(*entry.sequence);
    CHECK_GT(remaining, 0);
    if ((remaining == 1) == decodes) ScheduleChunk(id, &entry);
  }
}

// Admits the oldest waiting requests as long as there is room.
void Scheduler::AdmitWaiting() {
  for (auto& [id, entry] : requests_) {
    if (entry.sequence) continue;
    if (budget_ == 0 || !HasRoomFor(entry) || !GiveSequence(&entry)) return;
    ScheduleChunk(id, &entry);
  }
}

// As many of the request's remaining tokens as budget and blocks allow, maybe none.
void Scheduler::ScheduleChunk(RequestId id, Entry* entry) {
  const SequenceId sequence = *entry->sequence;
  const int start = cache_->NumTokens(sequence);
  const int wanted = std::min(entry->num_tokens - start, budget_);
  const int num_tokens = wanted > 0 ? Reserve(id, sequence, wanted) : 0;
  if (num_tokens == 0) return;
  budget_ -= num_tokens;
  output_.chunks.push_back({.request = id,
                            .sequence = sequence,
                            .start = start,
                            .num_tokens = num_tokens,
                            .reaches_end = start + num_tokens == entry->num_tokens});
}

// Reserves slots for `wanted` tokens, or for those that the free blocks allow once nothing that may
// yield is left.
int Scheduler::Reserve(RequestId id, SequenceId sequence, int wanted) {
  int64_t fitting = TokensThatFit(sequence);
  while (fitting < wanted) {
    const bool freed = DropOldestKept() || (fitting == 0 && PreemptYoungerThan(id));
    if (!freed) break;
    fitting = TokensThatFit(sequence);
  }
  const int num_tokens = static_cast<int>(std::min<int64_t>(wanted, fitting));
  if (num_tokens == 0 || !cache_->AllocateSlots(sequence, num_tokens)) return 0;
  return num_tokens;
}

// Tokens that close no more blocks than are free.
int64_t Scheduler::TokensThatFit(SequenceId sequence) const {
  const int block_size = cache_->block_size();
  return (static_cast<int64_t>(cache_->NumFreeBlocks()) + 1) * block_size - 1 -
         cache_->NumTokens(sequence) % block_size;
}

bool Scheduler::HasRoomFor(const Entry& entry) {
  const int64_t available = cache_->NumFreeBlocks() + num_kept_blocks();
  int64_t needed = BlocksLacking(entry);
  bool running = false;
  for (const auto& [id, other] : requests_) {
    if (!other.sequence) continue;
    running = true;
    needed += BlocksLacking(other) + 1;
  }
  return !running || needed <= available;
}

int Scheduler::num_kept_blocks() const {
  int blocks = 0;
  for (const Kept& kept : kept_) blocks += BlocksHeld(kept.sequence);
  return blocks;
}

int Scheduler::BlocksHeld(SequenceId sequence) const {
  return (cache_->NumTokens(sequence) + cache_->NumReservedTokens(sequence)) / cache_->block_size();
}

int Scheduler::BlocksLacking(const Entry& entry) const {
  return entry.num_tokens / cache_->block_size() -
         (entry.sequence ? BlocksHeld(*entry.sequence) : 0);
}

// The kept cache that the request continues, or a new sequence; false when there is none to be had.
bool Scheduler::GiveSequence(Entry* entry) {
  if (entry->continue_from) {
    const auto it = FindKept(*entry->continue_from);
    if (it != kept_.end()) {
      CHECK_LT(cache_->NumTokens(it->sequence), entry->num_tokens);
      entry->sequence = it->sequence;
      kept_.erase(it);
    }
    entry->continue_from.reset();
  }
  while (!entry->sequence) {
    entry->sequence = cache_->AddSequence();
    if (!entry->sequence && !DropOldestKept()) return false;
  }
  return true;
}

bool Scheduler::DropOldestKept() {
  if (kept_.empty()) return false;
  Release(kept_.front().id);
  return true;
}

// Takes the blocks of the youngest running request that is younger than `id` and has some; false if
// there is none.
bool Scheduler::PreemptYoungerThan(RequestId id) {
  for (auto& [other_id, entry] : std::ranges::reverse_view(requests_)) {
    if (other_id <= id) return false;
    if (!entry.sequence || BlocksHeld(*entry.sequence) == 0) continue;
    TakeBack(other_id, &entry);
    return true;
  }
  return false;
}

void Scheduler::TakeBack(RequestId id, Entry* entry) {
  const auto chunk = std::ranges::find(output_.chunks, id, &ScheduledChunk::request);
  if (chunk != output_.chunks.end()) {
    budget_ += chunk->num_tokens;
    output_.chunks.erase(chunk);
  }
  cache_->Free(*entry->sequence);
  entry->sequence.reset();
  output_.preempted.push_back(id);
}

std::vector<Scheduler::Kept>::iterator Scheduler::FindKept(RequestId id) {
  return std::ranges::find(kept_, id, &Kept::id);
}

bool Scheduler::IsKept(RequestId id) const {
  return std::ranges::find(kept_, id, &Kept::id) != kept_.end();
}

int Scheduler::num_running() const {
  return static_cast<int>(std::ranges::count_if(
      requests_, [](const auto& item) { return item.second.sequence.has_value(); }));
}

int Scheduler::num_waiting() const { return static_cast<int>(requests_.size()) - num_running(); }

std::optional<RequestId> Scheduler::Oldest() const {
  if (requests_.empty()) return std::nullopt;
  return requests_.begin()->first;
}

std::optional<SequenceId> Scheduler::SequenceOf(RequestId id) const {
  return requests_.at(id).sequence;
}

}  // namespace turboquant
