#include "tests/unit/dpdk/rig.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "dataplane/dpdk/wire_port.h"
#include "rocemu/abi/rxe_ring.h"
#include "rocemu/base/bytes.h"
#include "verbs_shim/doorbell.h"

namespace rocemu::dpdk::test {
namespace {

constexpr int kPatienceMs = 20'000;

bool is_readable(int fd, int timeout_ms) {
  pollfd p{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&p, 1, timeout_ms) > 0;
}

std::atomic_ref<std::uint32_t> word(std::byte* p) {
  return std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(p));
}

}  // namespace

std::vector<std::byte> other_frame(const wire::MacAddress& to, std::size_t bytes) {
  std::vector<std::byte> frame(bytes);
  std::ranges::transform(to, frame.begin(), [](std::uint8_t b) { return std::byte{b}; });
  store_be<std::uint16_t>(frame.data() + 12, 0x0806);
  return frame;
}

Rig::Rig(const WorkerConfig& config) : worker(std::make_unique<Worker>(config, stats)) {
  engine::EngineConfig engine;
  engine.limits = {.max_qps = 1024, .max_cqs = 64, .max_srqs = 1};
  std::size_t i = 0;
  for (const auto& mac : {kMacA, kMacB}) {
    worker->add_device(std::make_unique<WirePort>(wire.attach(mac)), engine, memory, regions,
                       counters[i], Prng(i));
    ++i;
  }
}

Rig::~Rig() { worker->stop(); }

bool Rig::wait_for_notification() { return is_readable(worker->notification_fd(), kPatienceMs); }

Client::Client(Rig& rig, ContextId id, std::uint32_t slot, std::span<std::byte> ring_memory)
    : wake_fd(::eventfd(0, EFD_CLOEXEC)),
      page(std::make_unique<DoorbellPage>()),
      rig_(rig),
      id_(id),
      slot_(slot),
      memory_(ring_memory) {
  EXPECT_EQ(::pipe2(pipe_ends, O_NONBLOCK | O_CLOEXEC), 0);
  rig.worker->run([&] {
    auto& queues = rig.worker->queues();
    region_ = queues.add_region(memory_);
    page_region_ = queues.add_region({reinterpret_cast<std::byte*>(page.get()), sizeof *page});
    cq_ring_ = {region_, 0, 6, kEntries - 1};
    send_ring_ = {region_, 256 << 10, 8, kEntries - 1};
    recv_ring_ = {region_, 512 << 10, 8, kEntries - 1};
    for (const auto& ring : {cq_ring_, send_ring_, recv_ring_}) {
      EXPECT_TRUE(queues.format_ring(ring));
    }
    engine::Engine& engine = rig.worker->engine(0);
    rig.worker->add_context(id, 0, page.get(), wake_fd, memory_);
    cq_ = engine
              .create_cq({.context = id,
                          .ring = cq_ring_,
                          .arm = {page_region_, offsetof(DoorbellPage, cq_arm) + 4 * slot}})
              .value();
    rig.worker->bind_cq(id, slot, cq_, {pipe_ends[1], slot});
    transport::QpInit init;
    init.context = id;
    init.pd = PdId{1};
    init.send_cq = init.recv_cq = cq_;
    init.send_ring = send_ring_;
    init.recv_ring = recv_ring_;
    init.caps = {kEntries, kEntries, 1, 1, 0};
    qp_ = engine.create_qp(init).value();
    rig.worker->bind_qp(id, slot, qp_);
    transport::QpAttr attr;
    attr.state = transport::QpState::kErr;
    EXPECT_TRUE(engine.modify_qp(rig.worker->now(), qp_, attr, transport::kQpState).ok());
  });
}

Client::~Client() {
  rig_.worker->run([&] {
    engine::Engine& engine = rig_.worker->engine(0);
    rig_.worker->unbind_qp(id_, slot_);
    EXPECT_TRUE(engine.destroy_qp(rig_.worker->now(), qp_).ok());
    (void)rig_.worker->unbind_cq(id_, slot_);
    EXPECT_TRUE(engine.destroy_cq(cq_).ok());
    rig_.worker->remove_context(id_);
    rig_.worker->queues().remove_region(region_);
    rig_.worker->queues().remove_region(page_region_);
  });
  for (const int fd : {pipe_ends[0], pipe_ends[1], wake_fd}) ::close(fd);
}

void Client::post() {
  std::byte* wqe = at(send_ring_) + rxe::kQueueData +
                   (std::size_t{producer_ & send_ring_.mask} << send_ring_.log2_stride);
  store(wqe + rxe::kSendWrId, std::uint64_t{producer_});
  store(wqe + rxe::kSendOpcode, static_cast<std::uint32_t>(transport::WrOpcode::kSend));
  ++producer_;
  word(at(send_ring_) + rxe::kQueueProducerIndex)
      .store(producer_ & send_ring_.mask, std::memory_order_release);
  shim::ring_qp(*page, wake_fd, slot_);
}

void Client::arm() { shim::arm_cq(*page, wake_fd, slot_, kArmedAny); }

bool Client::poll() {
  const std::uint32_t producer =
      word(at(cq_ring_) + rxe::kQueueProducerIndex).load(std::memory_order_acquire);
  if (producer == (consumer_ & cq_ring_.mask)) return false;
  ++consumer_;
  word(at(cq_ring_) + rxe::kQueueConsumerIndex)
      .store(consumer_ & cq_ring_.mask, std::memory_order_release);
  return true;
}

bool Client::await_event() {
  if (!is_readable(pipe_ends[0], kPatienceMs)) return false;
  std::uint64_t cookie = ~0ull;
  return ::read(pipe_ends[0], &cookie, sizeof cookie) == 8 && cookie == slot_;
}

}  // namespace rocemu::dpdk::test
