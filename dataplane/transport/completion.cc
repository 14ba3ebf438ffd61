#include "dataplane/transport/completion.h"

#include <algorithm>

#include "dataplane/transport/receive_queue.h"
#include "dataplane/transport/resources.h"
#include "rocemu/base/check.h"

namespace rocemu::transport {
namespace {

constexpr Duration kFirstFlushInterval = milliseconds(1);
constexpr Duration kLastFlushInterval = milliseconds(64);
// Work requests of a queue flushed at once; others have their turn before the rest.
constexpr std::uint32_t kFlushBatch = 256;
constexpr Duration kFlushPause = microseconds(10);

enum class Flushed : std::uint8_t { kNothing, kAll, kPart };

WcOpcode wc_opcode(WrOpcode opcode) {
  switch (opcode) {
    case WrOpcode::kRdmaWrite:
    case WrOpcode::kRdmaWriteWithImm:
      return WcOpcode::kRdmaWrite;
    case WrOpcode::kSend:
    case WrOpcode::kSendWithImm:
    case WrOpcode::kSendWithInv:
      return WcOpcode::kSend;
    case WrOpcode::kRdmaRead:
      return WcOpcode::kRdmaRead;
    case WrOpcode::kAtomicCmpAndSwp:
      return WcOpcode::kCompSwap;
    case WrOpcode::kAtomicFetchAndAdd:
      return WcOpcode::kFetchAdd;
    case WrOpcode::kLocalInv:
      return WcOpcode::kLocalInv;
    case WrOpcode::kBindMw:
      return WcOpcode::kBindMw;
    case WrOpcode::kFlush:
      return WcOpcode::kFlush;
    case WrOpcode::kAtomicWrite:
      return WcOpcode::kAtomicWrite;
  }
  return WcOpcode::kSend;
}

void count_status(Shard& shard, const Completion& completion) {
  const bool is_receive = static_cast<std::uint32_t>(completion.opcode) >= 128;
  if (completion.status == WcStatus::kSuccess) return;
  if (completion.status == WcStatus::kWrFlushErr) {
    shard.counters.add(is_receive ? Counter::resp_cqe_flush_error : Counter::req_cqe_flush_error);
  } else {
    shard.counters.add(is_receive ? Counter::resp_cqe_error : Counter::req_cqe_error);
  }
}

// Writes a completion of the QP and, when the CQ is armed for it, raises the event.
void post_completion(Shard& shard, Qp& qp, CqIndex cq_index, const Completion& completion,
                     Time now) {
  Cq& cq = shard.cqs[cq_index.value];
  count_status(shard, completion);
  if (cq.has_overflowed || !shard.queues.has_room(cq.ring, cq.producer)) {
    // A CQ that lost one is of no use any more, nor is a QP whose completion is lost (11.6.3.1).
    shard.counters.add(Counter::cq_overflows);
    if (!cq.has_overflowed) {
      cq.has_overflowed = true;
      shard.events.on_async_event({.type = AsyncEventType::kCqError, .cq = cq_index});
    }
    if (qp.state != QpState::kErr) set_timer(shard, qp, TimerKind::kFatal, now);
    return;
  }
  shard.queues.write_completion(cq.ring, cq.producer++, completion);
  const bool is_solicited = completion.is_solicited || completion.status != WcStatus::kSuccess;
  if (cq.is_armable && shard.queues.take_arm(cq.arm, is_solicited)) {
    cq.announced = cq.producer;
    shard.events.on_completion_event(cq_index);
  }
}

Flushed flush_send(Shard& shard, Qp& qp, Time now) {
  std::uint32_t room = kFlushBatch;
  for (; qp.record_head != kNoIndex && room != 0; --room) {
    retire_head(shard, qp, WcStatus::kWrFlushErr, now);
  }
  if (qp.record_head != kNoIndex) return Flushed::kPart;
  std::uint32_t waiting = shard.queues.available(qp.send_ring, qp.sq_next);
  for (; waiting != 0 && room != 0; --waiting, --room) {
    // A malformed work request is flushed like any other: only its wr_id and opcode are used.
    (void)read_send(shard, qp, qp.sq_next);
    qp.sq_retired = ++qp.sq_next;
    shard.queues.retire(qp.send_ring, qp.sq_retired);
    post_completion(shard, qp, qp.send_cq,
                    {.wr_id = shard.send_wr.wr_id,
                     .status = WcStatus::kWrFlushErr,
                     .opcode = wc_opcode(shard.send_wr.opcode),
                     .qp = qp.number},
                    now);
  }
  qp.sq_published = qp.sq_next;
  if (waiting != 0) return Flushed::kPart;
  return room == kFlushBatch ? Flushed::kNothing : Flushed::kAll;
}

Flushed flush_receives(Shard& shard, Qp& qp, Time now) {
  const std::uint32_t waiting = flushable_receives(shard, qp);
  for (std::uint32_t i = std::min(waiting, kFlushBatch); i != 0; --i) {
    fail_receive(shard, qp, WcStatus::kWrFlushErr, now);
  }
  if (waiting == 0) return Flushed::kNothing;
  return waiting <= kFlushBatch ? Flushed::kAll : Flushed::kPart;
}

}  // namespace

void retire_head(Shard& shard, Qp& qp, WcStatus status, Time now) {
  const std::uint32_t index = qp.record_head;
  ROCEMU_CHECK(index != kNoIndex);
  const SendRecord record = shard.records[index];
  ROCEMU_CHECK(record.wqe_index == qp.sq_retired);
  if (record.needs_response() && !record.is_refused) --qp.reads_outstanding;
  if (qp.tx_record == index) {
    qp.tx_record = record.next;
    qp.tx_packet = 0;
  }
  qp.record_head = record.next;
  if (qp.record_head == kNoIndex) qp.record_tail = kNoIndex;
  shard.records.release(index);
  // The place in the ring is free before the program can see the completion: it may post at once.
  shard.queues.retire(qp.send_ring, ++qp.sq_retired);
  if (!record.is_signaled && status == WcStatus::kSuccess) return;
  post_completion(shard, qp, qp.send_cq,
                  {.wr_id = record.wr_id,
                   .status = status,
                   .opcode = wc_opcode(record.opcode),
                   .byte_length = record.needs_response() ? record.length : 0,
                   .qp = qp.number},
                  now);
}

void retire_receive(Shard& shard, Qp& qp, const Completion& completion, Time now) {
  release_receive(shard, qp);
  post_completion(shard, qp, qp.recv_cq, completion, now);
}

void fail_receive(Shard& shard, Qp& qp, WcStatus status, Time now) {
  retire_receive(shard, qp,
                 {.wr_id = oldest_receive(shard, qp),
                  .status = status,
                  .opcode = WcOpcode::kRecv,
                  .qp = qp.number},
                 now);
}

void enter_error(Shard& shard, Qp& qp, Time now, const AsyncEventType* cause) {
  if (qp.state == QpState::kErr) return;
  qp.state = QpState::kErr;
  qp.incoming = Incoming::kNone;
  qp.tx_record = kNoIndex;
  clear_timer(qp, TimerKind::kAck);
  clear_timer(qp, TimerKind::kRnr);
  clear_timer(qp, TimerKind::kBegin);
  clear_timer(qp, TimerKind::kFatal);
  if (!qp.has_refused) {
    cancel_due(shard, qp);
    qp.pending_response = PendingResponse::kNone;
  }
  if (cause != nullptr) raise_event(shard, qp, *cause);
  qp.flush_interval = kFirstFlushInterval;
  flush_queues(shard, qp, now);
}

void flush_queues(Shard& shard, Qp& qp, Time now) {
  const Flushed sends = flush_send(shard, qp, now);
  const Flushed receives = flush_receives(shard, qp, now);
  if (sends == Flushed::kPart || receives == Flushed::kPart) {
    set_timer(shard, qp, TimerKind::kFlush, now + kFlushPause);
    return;
  }
  if (!qp.srq.is_none()) {
    // Nothing more of the SRQ will end on this QP (11.6.3.2).
    if (!qp.has_last_wqe_event) raise_event(shard, qp, AsyncEventType::kQpLastWqeReached);
    qp.has_last_wqe_event = true;
    return;
  }
  qp.flush_interval = receives == Flushed::kAll
                          ? kFirstFlushInterval
                          : std::min(qp.flush_interval * 2, kLastFlushInterval);
  set_timer(shard, qp, TimerKind::kFlush, now + qp.flush_interval);
}

void flush_send_queue(Shard& shard, Qp& qp, Time now) {
  if (flush_send(shard, qp, now) == Flushed::kPart) {
    set_timer(shard, qp, TimerKind::kFlush, now + kFlushPause);
  }
}

void flush_whole_send_queue(Shard& shard, Qp& qp, Time now) {
  while (flush_send(shard, qp, now) == Flushed::kPart) {
  }
}

void raise_event(Shard& shard, const Qp& qp, AsyncEventType type) {
  shard.events.on_async_event({.type = type, .qp = qp.number});
}

void drop_all_state(Shard& shard, Qp& qp) {
  while (qp.record_head != kNoIndex) {
    const std::uint32_t index = qp.record_head;
    qp.record_head = shard.records[index].next;
    shard.records.release(index);
  }
  while (qp.resource_head != kNoIndex) {
    const std::uint32_t index = qp.resource_head;
    qp.resource_head = shard.resources[index].next;
    shard.resources.release(index);
  }
  qp.record_tail = qp.tx_record = qp.resource_tail = kNoIndex;
  qp.resource_count = qp.due_resources = 0;
  qp.reads_outstanding = 0;
  qp.pending_response = PendingResponse::kNone;
  qp.has_refused = qp.has_implied_nak = qp.owes_sequence_nak = false;
  qp.has_last_wqe_event = false;
  for (Time& deadline : qp.deadlines) deadline = Time::never();
}

}  // namespace rocemu::transport
