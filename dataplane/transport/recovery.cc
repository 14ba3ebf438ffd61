#include "dataplane/transport/recovery.h"

#include "dataplane/transport/completion.h"
#include "dataplane/transport/rnr_timer.h"
#include "dataplane/transport/unreliable.h"
#include "rocemu/base/check.h"

namespace rocemu::transport {
namespace {

constexpr std::uint8_t kInfiniteRetries = 7;

bool has_outstanding(const Qp& qp) { return distance(qp.unacked_psn, qp.sent_psn) > 0; }

// IBTA makes only rnr_retry 7 infinite; rxe also retry_cnt 7.
bool is_retry_infinite(const Shard& shard, const Qp& qp) {
  return shard.config.is_rxe && qp.attr.retry_count == kInfiniteRetries;
}

void on_ack_timeout(Shard& shard, Qp& qp, Time now) {
  if (qp.record_head == kNoIndex || !has_outstanding(qp)) return;
  shard.counters.add(Counter::local_ack_timeout_err);
  ++qp.stats.timeouts;
  retry_from(shard, qp, qp.unacked_psn, now);
}

}  // namespace

std::uint32_t find_record(const Shard& shard, const Qp& qp, Psn psn) {
  for (std::uint32_t i = qp.record_head; i != kNoIndex; i = shard.records[i].next) {
    const SendRecord& record = shard.records[i];
    if (distance(record.first_psn, psn) >= 0 && distance(psn, record.last_psn()) >= 0) return i;
  }
  return kNoIndex;
}

void go_back(Shard& shard, Qp& qp, Psn psn) {
  const std::uint32_t index = find_record(shard, qp, psn);
  if (index == kNoIndex) return;
  const SendRecord& record = shard.records[index];
  qp.tx_record = index;
  // A READ is asked for from the first missing response on, whatever psn says.
  qp.tx_packet = record.needs_response()
                     ? record.received
                     : static_cast<std::uint32_t>(distance(record.first_psn, psn));
  schedule(shard, qp);
}

void retry_from(Shard& shard, Qp& qp, Psn psn, Time now) {
  if (qp.retries_left == 0 && !is_retry_infinite(shard, qp)) {
    shard.counters.add(Counter::req_transport_retries_exceeded);
    fail_head(shard, qp, WcStatus::kRetryExcErr, now);
    return;
  }
  if (qp.retries_left != 0) --qp.retries_left;
  go_back(shard, qp, psn);
  clear_timer(qp, TimerKind::kAck);
  start_ack_timer(shard, qp, now);
}

void wait_rnr(Shard& shard, Qp& qp, Psn psn, std::uint8_t timer_field, Time now) {
  if (qp.rnr_retries_left == 0) {
    shard.counters.add(Counter::req_rnr_retries_exceeded);
    fail_head(shard, qp, WcStatus::kRnrRetryExcErr, now);
    return;
  }
  if (qp.attr.rnr_retry != kInfiniteRetries) --qp.rnr_retries_left;
  go_back(shard, qp, psn);
  clear_timer(qp, TimerKind::kAck);
  set_timer(shard, qp, TimerKind::kRnr, now + rnr_timer(timer_field));
}

void note_progress(Shard& shard, Qp& qp, Time now) {
  qp.retries_left = qp.attr.retry_count;
  qp.rnr_retries_left = qp.attr.rnr_retry;
  qp.has_implied_nak = false;
  clear_timer(qp, TimerKind::kAck);
  start_ack_timer(shard, qp, now);
}

void start_ack_timer(Shard& shard, Qp& qp, Time now) {
  if (qp.attr.timeout == 0 || is_timer_set(qp, TimerKind::kAck)) return;
  if (is_timer_set(qp, TimerKind::kRnr) || !has_outstanding(qp)) return;
  set_timer(shard, qp, TimerKind::kAck, now + ack_timeout(qp.attr.timeout));
}

void run_timers(Shard& shard, Qp& qp, Time now) {
  const auto take_due = [&](TimerKind kind) {
    Time& deadline = qp.deadlines[static_cast<std::size_t>(kind)];
    if (deadline > now) return false;
    deadline = Time::never();
    return true;
  };
  if (take_due(TimerKind::kRnr)) {
    schedule(shard, qp);
    start_ack_timer(shard, qp, now);
  }
  if (take_due(TimerKind::kAck)) on_ack_timeout(shard, qp, now);
  if (take_due(TimerKind::kBegin)) schedule(shard, qp);
  if (take_due(TimerKind::kFatal)) {
    constexpr AsyncEventType kCause = AsyncEventType::kQpFatal;
    enter_error(shard, qp, now, &kCause);
  }
  if (take_due(TimerKind::kFlush)) {
    if (qp.state == QpState::kErr) flush_queues(shard, qp, now);
    if (qp.state == QpState::kSqe) flush_send_queue(shard, qp, now);
  }
  for (const Time deadline : qp.deadlines) {
    if (!deadline.is_never()) shard.deadlines.watch(shard.index_of(qp), deadline);
  }
}

void fail_head(Shard& shard, Qp& qp, WcStatus status, Time now) {
  ROCEMU_CHECK(qp.record_head != kNoIndex);
  retire_head(shard, qp, status, now);
  if (qp.is_reliable()) {
    enter_error(shard, qp, now);
  } else {
    enter_send_error(shard, qp, now);
  }
}

}  // namespace rocemu::transport
