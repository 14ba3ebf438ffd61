// Set-up, and the calls of the control thread: jobs in, notifications out.
#include "dataplane/dpdk/worker.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "dataplane/dpdk/capture_port.h"
#include "dataplane/dpdk/sigbus_guard.h"
#include "dataplane/dpdk/worker_impl.h"
#include "rocemu/base/check.h"

namespace rocemu::dpdk {
namespace {

int make_eventfd() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return fd;
}

// Edges, not levels: nobody reads the descriptors.
void watch(int epoll_fd, int fd, Context* context) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = context;
  if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
}

}  // namespace

Time read_clock() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return {t.tv_sec * 1'000'000'000 + t.tv_nsec};
}

void signal_fd(int fd) {
  const std::uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

Worker::Impl::Impl(const WorkerConfig& worker_config, WorkerBlock& block)
    : config(worker_config),
      stats(block),
      queues(std::min(worker_config.max_contexts, kMaxContexts) * 2),
      burst(std::clamp<std::size_t>(worker_config.burst, 1, kMaxBurst)),
      now(read_clock()),
      job_fd(make_eventfd()),
      notification_fd(make_eventfd()) {
  ROCEMU_CHECK(burst.size() >= config.transmit_budget);
  config.max_contexts = std::min(config.max_contexts, kMaxContexts);
  active.reserve(config.max_contexts);
  rung.qps.reserve(kDoorbellRingSize + Doorbells::kSweepSlots);
  rung.cqs.reserve(kDoorbellRingSize + Doorbells::kSweepSlots);
  epoll_fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  watch(epoll_fd, job_fd, nullptr);
}

Worker::Impl::~Impl() {
  stop();
  for (const auto& [id, context] : contexts) unguard_ranges(id);
  ::close(epoll_fd);
  ::close(job_fd);
  ::close(notification_fd);
}

void Worker::Impl::start() {
  ROCEMU_CHECK(!thread.joinable());
  is_stopping.store(false, std::memory_order_relaxed);  // the thread's start orders it
  thread = std::thread([this] { run_loop(); });
}

void Worker::Impl::stop() {
  if (!thread.joinable()) return;
  is_stopping.store(true, std::memory_order_release);  // pairs with run_loop's acquire
  signal_fd(job_fd);
  thread.join();
}

void Worker::Impl::run_job(void (*invoke)(void*), void* arg) {
  if (!thread.joinable()) {
    invoke(arg);
    return;
  }
  const std::uint32_t ticket = ++jobs_submitted;
  while (!jobs.try_push(Job{invoke, arg})) ::sched_yield();
  // Store, then load: pairs with the fence in sleep().
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (is_asleep.load(std::memory_order_relaxed) != 0) signal_fd(job_fd);
  for (std::uint32_t done = ticket - 1; done != ticket;) {
    jobs_done.wait(done, std::memory_order_acquire);
    done = jobs_done.load(std::memory_order_acquire);  // pairs with run_jobs' release
  }
}

Worker::Worker(const WorkerConfig& config, WorkerBlock& stats)
    : impl_(std::make_unique<Impl>(config, stats)) {}

Worker::~Worker() = default;

std::size_t Worker::add_device(std::unique_ptr<Port> port, const engine::EngineConfig& config,
                               memory::MemoryPort& memory, memory::MrTable& regions,
                               CounterBlock& counters, Prng prng) {
  ROCEMU_CHECK(!impl_->thread.joinable());
  Device device;
  device.port = std::move(port);
  device.outbox = std::make_unique<EventOutbox>();
  device.counters = &counters;
  device.engine = std::make_unique<engine::Engine>(config, impl_->queues, memory, regions,
                                                   *device.outbox, counters, prng);
  impl_->needs_polling |= device.port->needs_polling();
  if (const int fd = device.port->interrupt_fd(); fd >= 0) {
    watch(impl_->epoll_fd, fd, nullptr);
    impl_->has_interrupts = true;
  }
  impl_->devices.push_back(std::move(device));
  return impl_->devices.size() - 1;
}

void Worker::add_host_link(std::size_t index, int tap_fd) {
  ROCEMU_CHECK(!impl_->thread.joinable());
  Device& device = impl_->devices.at(index);
  device.host = std::make_unique<HostLink>(tap_fd, *device.counters);
  watch(impl_->epoll_fd, tap_fd, nullptr);
  impl_->has_host_links = true;
}

void Worker::start() { impl_->start(); }

void Worker::stop() { impl_->stop(); }

void Worker::run_erased(void (*invoke)(void*), void* arg) { impl_->run_job(invoke, arg); }

int Worker::notification_fd() const { return impl_->notification_fd; }

std::optional<Notification> Worker::next_notification() {
  for (const bool is_last : {false, true}) {
    if (auto next = impl_->notifications.try_pop()) return next;
    if (auto next = impl_->punted.try_pop()) return next;
    if (is_last) break;
    // Emptied before the last look: what comes after that look makes it readable again.
    std::uint64_t ignored;
    (void)!::read(impl_->notification_fd, &ignored, sizeof ignored);
  }
  return std::nullopt;
}

engine::Engine& Worker::engine(std::size_t device) { return *impl_->devices.at(device).engine; }
Port& Worker::port(std::size_t device) { return *impl_->devices.at(device).port; }
engine::RxeQueues& Worker::queues() { return impl_->queues; }
Time Worker::now() const { return impl_->now; }

void Worker::add_context(ContextId id, std::size_t device, DoorbellPage* page, int wake_fd,
                         std::span<std::byte> rings) {
  ROCEMU_CHECK(device < impl_->devices.size());
  ROCEMU_CHECK(impl_->contexts.size() < impl_->config.max_contexts);
  auto context = std::make_unique<Context>(id, device, page, wake_fd);
  ROCEMU_CHECK(guard_range(rings, id.value));
  ROCEMU_CHECK(guard_range({reinterpret_cast<std::byte*>(page), sizeof *page}, id.value));
  watch(impl_->epoll_fd, wake_fd, context.get());
  impl_->activate(*context);
  ROCEMU_CHECK(impl_->contexts.emplace(id.value, std::move(context)).second);
}

void Worker::remove_context(ContextId id) {
  const auto found = impl_->contexts.find(id.value);
  if (found == impl_->contexts.end()) return;
  ::epoll_ctl(impl_->epoll_fd, EPOLL_CTL_DEL, found->second->wake_fd, nullptr);
  std::erase(impl_->active, found->second.get());
  unguard_ranges(id.value);
  impl_->contexts.erase(found);
}

void Worker::bind_qp(ContextId id, std::uint32_t slot, QpNum qp) {
  impl_->contexts.at(id.value)->doorbells.bind_qp(slot, qp);
}

void Worker::unbind_qp(ContextId id, std::uint32_t slot) {
  impl_->contexts.at(id.value)->doorbells.unbind_qp(slot);
}

void Worker::bind_cq(ContextId id, std::uint32_t slot, CqIndex cq, const CompletionTarget& target) {
  Context& context = *impl_->contexts.at(id.value);
  context.doorbells.bind_cq(slot, cq);
  impl_->devices[context.device].outbox->bind(cq, target);
}

std::uint64_t Worker::unbind_cq(ContextId id, std::uint32_t slot) {
  Context& context = *impl_->contexts.at(id.value);
  const CqIndex cq = context.doorbells.unbind_cq(slot);
  return cq.is_none() ? 0 : impl_->devices[context.device].outbox->unbind(cq);
}

bool Worker::send_raw(std::size_t device, std::span<const std::byte> frame) {
  Port& port = *impl_->devices.at(device).port;
  const auto buffer = port.allocate(frame.size());
  if (!buffer) return false;
  std::memcpy(buffer->base + engine::kTxHeadroom, frame.data(), frame.size());
  engine::TxFrame tx;
  tx.buffer = *buffer;
  tx.headers_start = engine::kTxHeadroom;
  tx.headers_bytes = static_cast<std::uint16_t>(frame.size());
  tx.length = static_cast<std::uint32_t>(frame.size());
  port.transmit(tx);
  (void)port.flush();
  return true;
}

Result<void> Worker::start_capture(std::size_t index, std::unique_ptr<Capture>&& capture) {
  Device& device = impl_->devices.at(index);
  if (device.capture != nullptr) return Error{EBUSY, "a capture of this device runs already"};
  auto port = std::make_unique<CapturePort>(std::move(device.port), std::move(capture), impl_->now);
  device.capture = port.get();
  device.port = std::move(port);
  return {};
}

bool Worker::is_capturing(std::size_t index) const {
  return impl_->devices.at(index).capture != nullptr;
}

std::unique_ptr<Capture> Worker::stop_capture(std::size_t index) {
  Device& device = impl_->devices.at(index);
  if (device.capture == nullptr) return nullptr;
  auto [port, capture] = std::exchange(device.capture, nullptr)->dissolve();
  device.port = std::move(port);
  return std::move(capture);
}

}  // namespace rocemu::dpdk
