// What an engine tells the outside: completion events of armed CQs, and the asynchronous events of
// verbs. Values are IBV_EVENT_*.
#pragma once

#include <cstdint>

#include "rocemu/base/ids.h"

namespace rocemu::transport {

enum class AsyncEventType : std::uint8_t {
  kCqError = 0,  // IBV_EVENT_*
  kQpFatal = 1,
  kQpRequestError = 2,
  kQpAccessError = 3,
  kCommEstablished = 4,
  kSqDrained = 5,
  kPathMigrated = 6,
  kPathMigrationError = 7,
  kSrqError = 14,
  kSrqLimitReached = 15,
  kQpLastWqeReached = 16,
};

inline bool is_srq_event(AsyncEventType type) {
  return type == AsyncEventType::kSrqError || type == AsyncEventType::kSrqLimitReached;
}

struct AsyncEvent {
  AsyncEventType type = AsyncEventType::kCqError;
  QpNum qp = QpNum::none();         ///< For QP events.
  CqIndex cq = CqIndex::none();     ///< For kCqError.
  SrqIndex srq = SrqIndex::none();  ///< For SRQ events.
};

/// What the engine tells the outside; the implementation only queues (it is called in the middle of
/// a turn).
class EventSink {
 public:
  virtual ~EventSink() = default;
  /// An armed CQ got what it was armed for: exactly one completion event is due.
  virtual void on_completion_event(CqIndex cq) = 0;
  virtual void on_async_event(const AsyncEvent& event) = 0;
};

}  // namespace rocemu::transport
