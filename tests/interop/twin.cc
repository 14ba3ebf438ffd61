#include "tests/interop/twin.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "dataplane/wire/packet.h"
#include "rocemu/base/bytes.h"
#include "tests/unit/engine/pair.h"

namespace rocemu::interop {
namespace {

using engine::test::Host;
using engine::test::kBufferVa;
using engine::test::QpHandle;
using engine::test::SendOptions;
using transport::WrOpcode;
using wire::Opcode;
using wire::Operation;
using wire::Packet;

// Half of the buffer is the region of the peer's requests, half what is sent and received.
constexpr std::uint64_t kRemoteOffset = 512 * 1024;
constexpr std::uint64_t kRemoteRoom = 256 * 1024;
constexpr std::uint32_t kReceiveBytes = 256 * 1024;
constexpr std::size_t kMaxTries = 4000;
constexpr std::size_t kMaxPassedOver = 256;

engine::test::HostOptions options_of_rxe() {
  engine::test::HostOptions options;
  options.engine.personality = engine::Personality::kRxe;
  return options;
}

bool is_atomic(const Packet& packet) {
  const Operation operation = packet.info().operation;
  return operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
}

std::optional<WrOpcode> work_of(const Packet& first, const Packet& last) {
  const bool has_immediate = last.info().has(wire::kHasImmDt);
  switch (first.info().operation) {
    case Operation::kSend:
      if (last.info().has(wire::kHasIeth)) return WrOpcode::kSendWithInv;
      return has_immediate ? WrOpcode::kSendWithImm : WrOpcode::kSend;
    case Operation::kWrite:
      return has_immediate ? WrOpcode::kRdmaWriteWithImm : WrOpcode::kRdmaWrite;
    case Operation::kReadRequest:
      return WrOpcode::kRdmaRead;
    case Operation::kCompareSwap:
      return WrOpcode::kAtomicCmpAndSwp;
    case Operation::kFetchAdd:
      return WrOpcode::kAtomicFetchAndAdd;
    default:
      return std::nullopt;
  }
}

class Twin {
 public:
  Twin(const Conversation& conversation, Side side, const TwinOptions& options)
      : conversation_(conversation), side_(side), options_(options), host_(0, options_of_rxe()) {}

  TwinResult play();

 private:
  void bring_up();
  std::uint32_t access() const;
  void expect_frame(std::size_t at);
  std::optional<Packet> next_own(const Packet& theirs);
  bool advance(const Packet& theirs);
  bool goes_on(const Packet& theirs) const;
  bool deliver_response_before(Psn psn);
  void pull();
  void let_time_pass();

  void post_work_that_begins(std::size_t at);
  void deliver_next(std::deque<std::size_t>& waiting);
  void prepare_for(std::size_t at, Packet& packet);
  std::uint32_t bind_window();
  const Step* answer_to(std::size_t at) const;
  std::uint64_t address_here(std::uint32_t rkey, std::uint64_t va);
  void compare(std::size_t at, const Packet& ours);

  const Conversation& conversation_;
  Side side_;
  TwinOptions options_;
  Host host_;
  QpHandle qp_;
  Time now_{1'000'000};
  TwinResult result_;
  std::deque<engine::test::Frame> sent_;  // keeps what own_ points into
  std::deque<Packet> own_requests_;
  std::deque<Packet> own_responses_;
  std::optional<Psn> last_request_;
  std::deque<std::size_t> waiting_requests_;
  std::deque<std::size_t> waiting_responses_;
  std::map<std::uint32_t, std::uint64_t> base_of_key_;
  std::set<std::uint32_t> posted_psns_;
  std::set<std::uint32_t> received_psns_;
  std::set<std::uint64_t> known_words_;
};

TwinResult Twin::play() {
  const auto is_own = [this](const Step& step) { return step.from == side_; };
  if (std::ranges::none_of(conversation_.steps, is_own)) return result_;
  bring_up();
  for (std::size_t i = 0; i < conversation_.steps.size(); ++i) {
    const Step& step = conversation_.steps[i];
    if (step.from == side_) {
      expect_frame(i);
    } else if (step.has_arrived) {
      (step.packet.info().is_request ? waiting_requests_ : waiting_responses_).push_back(i);
    }
  }
  return std::move(result_);
}

void Twin::bring_up() {
  using namespace transport;
  const bool is_reliable = conversation_.service == wire::Service::kRc;
  qp_ = host_.make_qp(127, false, is_reliable ? QpType::kRc : QpType::kUc);
  const auto own_requests = conversation_.of(side_, true);
  const auto their_requests = conversation_.of(other(side_), true);
  const auto is_own = [this](const Step& step) { return step.from == side_; };
  const Step& own = *std::ranges::find_if(conversation_.steps, is_own);
  ASSERT_TRUE(host_.engine->set_gids({&own.packet.path.source, 1}).ok());
  QpAttr attr;
  attr.state = QpState::kInit;
  attr.access = access();
  constexpr std::uint32_t kInitMask = kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags;
  ASSERT_TRUE(host_.engine->modify_qp(now_, qp_.number, attr, kInitMask).ok());
  attr.state = QpState::kRtr;
  attr.path_mtu_bytes = conversation_.path_mtu();
  attr.destination_qp = own.packet.bth.destination_qp;
  if (!their_requests.empty()) attr.rq_psn = their_requests.front()->packet.bth.psn;
  attr.max_dest_rd_atomic = 16;
  attr.min_rnr_timer = 12;
  for (const Step* response : conversation_.of(side_, false)) {
    const Packet& packet = response->packet;
    if (packet.info().has(wire::kHasAeth) &&
        wire::aeth_class(packet.aeth.syndrome) == wire::AethClass::kRnrNak) {
      attr.min_rnr_timer = wire::aeth_value(packet.aeth.syndrome);
    }
  }
  attr.av.headers = own.packet.path;
  ASSERT_TRUE(host_.engine
                  ->modify_qp(now_, qp_.number, attr,
                              kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn |
                                  (is_reliable ? kQpMaxDestRdAtomic | kQpMinRnrTimer : 0))
                  .ok());
  attr.state = QpState::kRts;
  attr.timeout = 14;
  attr.retry_count = 7;
  attr.rnr_retry = 7;
  if (!own_requests.empty()) attr.sq_psn = own_requests.front()->packet.bth.psn;
  attr.max_rd_atomic = 16;
  ASSERT_TRUE(
      host_.engine
          ->modify_qp(
              now_, qp_.number, attr,
              kQpState | kQpSqPsn |
                  (is_reliable ? kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic : 0))
          .ok());
}

// All rights, unless the side refused a WRITE as invalid: then its QP did not give that one.
std::uint32_t Twin::access() const {
  const auto invalid = wire::make_nak_syndrome(wire::NakCode::kInvalidRequest);
  const auto refuses = [&](const Step* step) {
    return step->packet.info().has(wire::kHasAeth) && step->packet.aeth.syndrome == invalid;
  };
  const bool is_refused = std::ranges::any_of(conversation_.of(side_, false), refuses);
  return is_refused ? std::uint32_t{memory::kAccessLocalWrite} : engine::test::kAllAccess;
}

// The next frame of the side must be ours, too.
void Twin::expect_frame(std::size_t at) {
  const Packet& theirs = conversation_.steps[at].packet;
  const bool is_request = theirs.info().is_request;
  if (is_request) post_work_that_begins(at);
  for (std::size_t passed_over = 0;;) {
    const auto ours = next_own(theirs);
    if (!ours) {
      result_.differences.push_back({"frame", "none", std::string(theirs.info().name), at});
      break;
    }
    const bool is_same = ours->bth.opcode == theirs.bth.opcode && ours->bth.psn == theirs.bth.psn;
    if (!is_same && options_.may_miss_frames && ++passed_over < kMaxPassedOver) continue;
    compare(at, *ours);
    break;
  }
  if (is_request) last_request_ = theirs.bth.psn;
}

std::optional<Packet> Twin::next_own(const Packet& theirs) {
  std::deque<Packet>& own = theirs.info().is_request ? own_requests_ : own_responses_;
  for (std::size_t tries = 0; own.empty(); ++tries) {
    if (tries == kMaxTries || !advance(theirs)) return std::nullopt;
  }
  const Packet packet = own.front();
  own.pop_front();
  return packet;
}

// One thing at a time. A response of the side needs the peer's request first. A request that goes
// on where the one before it ended was under way whatever came in; one that goes back did so for a
// NAK, or for a time-out, before what acknowledged it had come.
bool Twin::advance(const Packet& theirs) {
  if (!theirs.info().is_request) {
    if (!waiting_requests_.empty()) {
      deliver_next(waiting_requests_);
      pull();
      return true;
    }
  } else if (!goes_on(theirs) && deliver_response_before(theirs.bth.psn)) {
    return true;
  }
  const std::size_t before = sent_.size();
  pull();
  if (sent_.size() != before) return true;
  if (theirs.info().is_request && goes_on(theirs) && !waiting_responses_.empty()) {
    deliver_next(waiting_responses_);
    return true;
  }
  if (!host_.engine->next_deadline()) return false;
  let_time_pass();
  return true;
}

bool Twin::goes_on(const Packet& theirs) const {
  return !last_request_ || distance(*last_request_, theirs.bth.psn) > 0;
}

bool Twin::deliver_response_before(Psn psn) {
  if (waiting_responses_.empty()) return false;
  const Packet& response = conversation_.steps[waiting_responses_.front()].packet;
  // A NAK, or data past what is missing, is a cause to go back; the answer itself is none, nor is
  // an acknowledgement that covers it.
  const bool is_nak = response.info().has(wire::kHasAeth) &&
                      wire::aeth_class(response.aeth.syndrome) != wire::AethClass::kAck;
  const bool is_data = response.info().operation != Operation::kAcknowledge;
  const std::int32_t ahead = distance(psn, response.bth.psn);
  if (!is_nak && !(is_data && ahead != 0) && ahead >= 0) return false;
  deliver_next(waiting_responses_);
  return true;
}

void Twin::pull() {
  if (host_.engine->poll_transmit(now_, host_.sink, 1) == 0) return;
  sent_.push_back(std::move(host_.sink.frames.front()));
  host_.sink.frames.pop_front();
  const Packet packet = engine::test::parse(sent_.back());
  (packet.info().is_request ? own_requests_ : own_responses_).push_back(packet);
}

void Twin::let_time_pass() {
  now_ = std::max(now_, *host_.engine->next_deadline());
  host_.engine->on_deadline(now_);
}

// The first packet of a message that was not seen before: the application posted it.
void Twin::post_work_that_begins(std::size_t at) {
  const Packet& first = conversation_.steps[at].packet;
  const std::uint32_t psn = first.bth.psn.value();
  if (!first.info().starts_message() || !posted_psns_.insert(psn).second) return;
  // A READ that asks again half-way begins no work: the first of its range did.
  std::uint32_t length = 0;
  const Packet* last = &first;
  Psn next = first.bth.psn;
  for (std::size_t i = at; i < conversation_.steps.size(); ++i) {
    const Step& step = conversation_.steps[i];
    if (step.from != side_ || !step.packet.info().is_request || step.packet.bth.psn != next)
      continue;
    last = &step.packet;
    length += static_cast<std::uint32_t>(step.packet.payload.size());
    next = next + 1;
    if (step.packet.info().ends_message()) break;
  }
  const auto opcode = work_of(first, *last);
  ASSERT_TRUE(opcode.has_value());
  if (*opcode == WrOpcode::kRdmaRead) {
    length = first.reth.dma_length;
    const std::uint32_t mtu = conversation_.path_mtu();
    for (std::uint32_t i = 1; i < (length + mtu - 1) / mtu; ++i)
      posted_psns_.insert((psn + i) & 0xff'ffff);
  }
  if (first.info().has(wire::kHasReth)) length = first.reth.dma_length;
  if (is_atomic(first)) length = 8;
  SendOptions options;
  if (last->bth.solicited) options.flags |= transport::kSendSolicited;
  options.immediate = last->imm.value;
  options.invalidate_rkey = last->ieth.rkey;
  options.remote_va = is_atomic(first) ? first.atomic.va : first.reth.va;
  options.rkey = is_atomic(first) ? first.atomic.rkey : first.reth.rkey;
  options.compare_add =
      *opcode == WrOpcode::kAtomicFetchAndAdd ? first.atomic.swap_or_add : first.atomic.compare;
  options.swap = first.atomic.swap_or_add;
  host_.post_send(now_, qp_, *opcode, std::array{host_.sge(0, length)}, options);
}

void Twin::deliver_next(std::deque<std::size_t>& waiting) {
  const std::size_t at = waiting.front();
  waiting.pop_front();
  Packet packet = conversation_.steps[at].packet;
  if (packet.info().is_request) prepare_for(at, packet);
  packet.bth.destination_qp = qp_.number;
  const std::span<const std::byte> payload = packet.payload;
  std::vector<std::byte> frame(engine::kTxHeadroom + payload.size() + 8);
  std::byte* begin = frame.data() + engine::kTxHeadroom;
  const std::size_t headers = wire::write_headers(packet, payload.size(), begin);
  std::ranges::copy(payload, begin);
  const std::size_t length = wire::finish_frame(begin - headers, headers, packet.l3_offset,
                                                packet.path.kind, payload.size());
  engine::RxFrame received({begin - headers, length}, nullptr, nullptr);
  host_.engine->on_frames(now_, {&received, 1});
  (void)host_.poll_all();
}

// Memory and receives as the side must have had them to answer so.
void Twin::prepare_for(std::size_t at, Packet& packet) {
  const Step* answer = answer_to(at);
  const bool is_nak = answer != nullptr && answer->packet.info().has(wire::kHasAeth) &&
                      wire::aeth_class(answer->packet.aeth.syndrome) == wire::AethClass::kNak;
  const bool is_refused = is_nak && answer->packet.aeth.syndrome ==
                                        wire::make_nak_syndrome(wire::NakCode::kRemoteAccessError);
  const std::uint32_t bad_key = host_.keys.rkey ^ 0x5a5a5a;
  if (packet.info().has(wire::kHasReth)) {
    packet.reth.va = address_here(packet.reth.rkey, packet.reth.va);
    packet.reth.rkey = is_refused ? bad_key : host_.keys.rkey;
  }
  // A key that was written through is a window of the QP; another is a region's.
  if (packet.info().has(wire::kHasIeth)) {
    packet.ieth.rkey = base_of_key_.contains(packet.ieth.rkey) ? bind_window() : host_.keys.rkey;
  }
  if (is_atomic(packet)) {
    packet.atomic.va = address_here(packet.atomic.rkey, packet.atomic.va);
    packet.atomic.rkey = is_refused ? bad_key : host_.keys.rkey;
    const bool is_known = !known_words_.insert(packet.atomic.va).second;
    if (!is_known && answer != nullptr && answer->packet.info().has(wire::kHasAtomicAckEth)) {
      store(host_.buffer.data() + (packet.atomic.va - kBufferVa),
            answer->packet.atomic_ack.original);
    }
  }
  const bool takes_receive =
      (packet.info().operation == Operation::kSend && packet.info().starts_message()) ||
      (packet.info().operation == Operation::kWrite && packet.info().has(wire::kHasImmDt));
  const bool finds_none =
      answer != nullptr && answer->packet.info().has(wire::kHasAeth) &&
      wire::aeth_class(answer->packet.aeth.syndrome) == wire::AethClass::kRnrNak;
  if (takes_receive && !finds_none && received_psns_.insert(packet.bth.psn.value()).second) {
    host_.post_recv(qp_, std::array{host_.sge(0, kReceiveBytes)}, 1);
  }
}

std::uint32_t Twin::bind_window() {
  const PdId pd{1};
  const auto window = host_.regions.add_window(pd, memory::WindowType::kType2).value();
  memory::MrAttr attr = host_.regions.attr(host_.keys.index);
  attr.access = memory::kAccessLocalWrite | memory::kAccessMwBind;
  const memory::WindowBind bind{.window_rkey = window.rkey,
                                .new_rkey = window.rkey ^ 1,
                                .region_lkey = host_.regions.add(attr).value().lkey,
                                .va = kBufferVa,
                                .length = 4096,
                                .access = memory::kAccessRemoteWrite};
  EXPECT_TRUE(host_.regions.bind(bind, {pd, qp_.number}));
  return bind.new_rkey;
}

// The side's response to this very packet, before the peer sends it again.
const Step* Twin::answer_to(std::size_t at) const {
  const Psn psn = conversation_.steps[at].packet.bth.psn;
  for (std::size_t i = at + 1; i < conversation_.steps.size(); ++i) {
    const Step& step = conversation_.steps[i];
    if (step.packet.bth.psn != psn) continue;
    const bool is_request = step.packet.info().is_request;
    if (step.from == side_ && !is_request) return &step;
    if (step.from != side_ && is_request) return nullptr;
  }
  return nullptr;
}

std::uint64_t Twin::address_here(std::uint32_t rkey, std::uint64_t va) {
  const auto base = base_of_key_.try_emplace(rkey, va & ~std::uint64_t{4095}).first->second;
  const std::uint64_t offset = va - base;
  return kBufferVa + kRemoteOffset + (offset < kRemoteRoom ? offset : 0);
}

void Twin::compare(std::size_t at, const Packet& ours) {
  const Packet& theirs = conversation_.steps[at].packet;
  ++result_.compared;
  const auto field = [&](const char* name, auto a, auto b) {
    if (a == b) return true;
    result_.differences.push_back(
        {std::string(theirs.info().name) + " " + name, std::to_string(a), std::to_string(b), at});
    return false;
  };
  if (ours.bth.opcode != theirs.bth.opcode) {
    result_.differences.push_back(
        {"opcode", std::string(ours.info().name), std::string(theirs.info().name), at});
    return;
  }
  field("psn", ours.bth.psn.value(), theirs.bth.psn.value());
  field("solicited", ours.bth.solicited, theirs.bth.solicited);
  field("mig_req", ours.bth.mig_req, theirs.bth.mig_req);
  field("pad_count", ours.bth.pad_count, theirs.bth.pad_count);
  field("transport_version", ours.bth.transport_version, theirs.bth.transport_version);
  field("pkey", ours.bth.pkey, theirs.bth.pkey);
  field("fecn", ours.bth.fecn, theirs.bth.fecn);
  field("becn", ours.bth.becn, theirs.bth.becn);
  field("destination_qp", ours.bth.destination_qp.value, theirs.bth.destination_qp.value);
  field("ack_req", ours.bth.ack_req, theirs.bth.ack_req);
  field("payload_bytes", ours.payload.size(), theirs.payload.size());
  if (theirs.info().has(wire::kHasReth)) {
    field("reth.va", ours.reth.va, theirs.reth.va);
    field("reth.rkey", ours.reth.rkey, theirs.reth.rkey);
    field("reth.dma_length", ours.reth.dma_length, theirs.reth.dma_length);
  }
  if (theirs.info().has(wire::kHasAeth)) {
    field("aeth.syndrome", ours.aeth.syndrome, theirs.aeth.syndrome);
    field("aeth.msn", ours.aeth.msn, theirs.aeth.msn);
  }
  if (theirs.info().has(wire::kHasAtomicEth)) {
    field("atomic.va", ours.atomic.va, theirs.atomic.va);
    field("atomic.rkey", ours.atomic.rkey, theirs.atomic.rkey);
    field("atomic.swap_or_add", ours.atomic.swap_or_add, theirs.atomic.swap_or_add);
    field("atomic.compare", ours.atomic.compare, theirs.atomic.compare);
  }
  if (theirs.info().has(wire::kHasAtomicAckEth)) {
    field("atomic_ack.original", ours.atomic_ack.original, theirs.atomic_ack.original);
  }
  if (theirs.info().has(wire::kHasImmDt)) field("imm", ours.imm.value, theirs.imm.value);
  if (theirs.info().has(wire::kHasIeth)) field("ieth.rkey", ours.ieth.rkey, theirs.ieth.rkey);
  field("kind", static_cast<int>(ours.path.kind), static_cast<int>(theirs.path.kind));
  field("vlan_tci", ours.path.has_vlan ? ours.path.vlan_tci : -1,
        theirs.path.has_vlan ? theirs.path.vlan_tci : -1);
  field("traffic_class", ours.path.traffic_class, theirs.path.traffic_class);
  field("hop_limit", ours.path.hop_limit, theirs.path.hop_limit);
  field("flow_label", ours.path.flow_label, theirs.path.flow_label);
  field("dont_fragment", ours.path.dont_fragment, theirs.path.dont_fragment);
  field("udp_source_port", ours.path.udp_source_port, theirs.path.udp_source_port);
  field("udp_checksum", ours.path.udp_checksum, theirs.path.udp_checksum);
}

}  // namespace

TwinResult play_twin(const Conversation& conversation, Side side, const TwinOptions& options) {
  return Twin(conversation, side, options).play();
}

}  // namespace rocemu::interop
