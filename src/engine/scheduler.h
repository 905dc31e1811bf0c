// Which sequences run how many tokens in the next step. Knows requests as token counts and owns
// their places in the cache; knows nothing of the model, of text or of sampling.
//
// First come, first served. A step has a budget of tokens: running sequences that need one token
// (decode) come first, then prompts in parts as large as budget and free blocks allow, oldest
// first, then waiting requests. A request is admitted when the cache has room for all of its
// tokens, for what admitted prompts still lack, and for one more block per running sequence; nobody
// overtakes it. Out of blocks is a normal answer, met in this order: caches kept for continuations
// go, least recently kept first; the youngest running request that came later is preempted (its
// blocks are freed, it waits at its old place and is computed again, with the same result); else
// the sequence sits this step out. So the oldest request always advances, provided that the pool
// holds one sequence of the largest length.
//
// Not thread-safe.
#ifndef TURBOQUANT_ENGINE_SCHEDULER_H_
#define TURBOQUANT_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cache/kv_cache_manager.h"
#include "engine/request.h"

namespace turboquant {

// The next num_tokens tokens of one request; their slots are reserved in the cache.
struct ScheduledChunk {
  RequestId request;
  SequenceId sequence;
  int start;  // tokens of the sequence that are in the cache
  int num_tokens;
  bool reaches_end;  // ends with the newest token of the request: its logits give the next one
};

struct SchedulerOutput {
  std::vector<ScheduledChunk> chunks;
  std::vector<RequestId> preempted;
};

class Scheduler {
 public:
  // `cache` must outlive this and have no sequences of others while Schedule runs. max_batch_tokens
  // >= the cache's max_num_seqs, so that every running sequence can decode in every step.
  Scheduler(KvCacheManager* cache, int max_batch_tokens);

  // A request of num_tokens > 0 tokens; ids must grow. If the cache of continue_from is still kept
  // when the request is admitted, it is taken over: the caller vouches that its tokens are the
  // first ones of this request, and fewer.
  void Add(RequestId id, int num_tokens, std::optional<RequestId> continue_from);
  // One token more, to be computed in a later step.
  void AppendToken(RequestId id);
  // The request is done, running or waiting. With `keep`, what it has in the cache stays for a
  // continuation.
  void Finish(RequestId id, bool keep);
  // Drops a kept cache; ignored where there is none.
  void Release(RequestId id);

  // Reserves slots for the chunks it returns; the caller computes and commits them before the next
  // call. No chunks although something is running or waiting: the system refused memory that the
  // pool had promised.
  SchedulerOutput Schedule();

  bool HasWork() const { return !requests_.empty(); }
  int num_running() const;
  int num_waiting() const;
  int num_kept() const { return static_cast<int>(kept_.size()); }
  int num_kept_blocks() const;
  bool IsKept(RequestId id) const;
  // The oldest request that is not done.
  std::optional<RequestId> Oldest() const;
  // Empty while the request waits.
  std::optional<SequenceId> SequenceOf(RequestId id) const;

 private:
  struct Entry {
    int num_tokens = 0;
    std::optional<SequenceId> sequence;  // running
    std::optional<RequestId> continue_from;
  };
  struct Kept {
    RequestId id;
    SequenceId sequence;
  };

  std::vector<Kept>::iterator FindKept(RequestId id);
  int BlocksHeld(SequenceId sequence) const;
  int BlocksLacking(const Entry& entry) const;
  int64_t TokensThatFit(SequenceId sequence) const;
  int Reserve(RequestId id, SequenceId sequence, int wanted);
  void ScheduleRunning(bool decodes);
  void ScheduleChunk(RequestId id, Entry* entry);
  void AdmitWaiting();
  bool HasRoomFor(const Entry& entry);
  bool GiveSequence(Entry* entry);
  void TakeBack(RequestId id, Entry* entry);
  bool DropOldestKept();
  bool PreemptYoungerThan(RequestId id);

  KvCacheManager* cache_;
  int max_batch_tokens_;
  std::map<RequestId, Entry> requests_;  // by age
  std::vector<Kept> kept_;               // least recently kept first
  // Of the Schedule call that runs.
  int budget_ = 0;
  SchedulerOutput output_;
};

}  // namespace turboquant

#endif  // TURBOQUANT_ENGINE_SCHEDULER_H_
