// The worker's turn and its surface for control. The turn reads from the top as the list of its
// duties.
#include "dataplane/dpdk/worker.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "dataplane/dpdk/eal.h"
#include "dataplane/dpdk/sigbus_guard.h"
#include "dataplane/dpdk/worker_impl.h"
#include "dataplane/wire/packet.h"
#include "rocemu/base/check.h"

namespace rocemu::dpdk {
namespace {

Time read_clock() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return {t.tv_sec * 1'000'000'000 + t.tv_nsec};
}

int make_eventfd() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  return fd;
}

void signal_fd(int fd) {
  const std::uint64_t one = 1;
  (void)!::write(fd, &one, sizeof one);
}

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
}

}  // namespace

Worker::Impl::Impl(const WorkerConfig& worker_config, WorkerBlock& block)
    : config(worker_config),
      stats(block),
      queues(worker_config.max_contexts * 2),
      burst(std::min<std::size_t>(worker_config.burst, kMaxBurst)),
      job_fd(make_eventfd()),
      notification_fd(make_eventfd()) {
  epoll_fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd < 0) throw std::system_error(errno, std::generic_category(), "epoll_create1");
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = nullptr;
  ::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, job_fd, &event);
}

Worker::Impl::~Impl() {
  stop();
  ::close(epoll_fd);
  ::close(job_fd);
  ::close(notification_fd);
}

void Worker::Impl::stop() {
  if (!thread.joinable()) return;
  is_stopping.store(true, std::memory_order_release);
  signal_fd(job_fd);
  thread.join();
}

void Worker::Impl::run_loop() {
  if (config.cpu >= 0) pin_to(config.cpu);
  register_thread();
  // The kernel may not stretch short sleeps by its default 50 us.
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
  ::pthread_setname_np(::pthread_self(), "rocemu-worker");
  now = idle_since = read_clock();
  poll_interval = microseconds(10);
  while (!is_stopping.load(std::memory_order_acquire)) {
    const Time begin = now;
    const bool has_worked = turn();
    now = read_clock();
    ++stats.turns;
    if (has_worked) {
      const auto spent = static_cast<std::uint64_t>((now - begin).ns);
      stats.busy_ns += spent;
      stats.max_turn_ns = std::max(stats.max_turn_ns, spent);
      idle_since = now;
      poll_interval = microseconds(10);
    } else {
      ++stats.idle_turns;
      if (now - idle_since >= config.spin_before_sleep) {
        sleep();
        now = read_clock();
      }
    }
  }
  (void)run_jobs();
}

bool Worker::Impl::turn() {
  bool has_worked = run_jobs();
  has_worked |= drain_doorbells();
  for (std::size_t i = 0; i < devices.size(); ++i) has_worked |= receive(devices[i], i);
  for (Device& device : devices) {
    const auto deadline = device.engine->next_deadline();
    if (deadline && *deadline <= now) {
      device.engine->on_deadline(now);
      has_worked = true;
    }
  }
  for (Device& device : devices) has_worked |= transmit(device);
  deliver_events();
  watch_links();
  report_faults();
  return has_worked;
}

bool Worker::Impl::run_jobs() {
  bool has_run = false;
  while (const auto job = jobs.try_pop()) {
    job->invoke(job->arg);
    jobs_done.fetch_add(1, std::memory_order_release);  // pairs with run_erased's acquire
    jobs_done.notify_one();
    has_run = true;
  }
  return has_run;
}

bool Worker::Impl::drain_doorbells() {
  bool has_rung = false;
  for (Context* context : active) {
    if (!context->doorbells.has_work()) continue;
    rung.clear();
    context->doorbells.drain(rung);
    Device& device = devices[context->device];
    if (rung.sweeps != 0) {
      device.counters->add(Counter::doorbell_sweeps, rung.sweeps);
      rung.sweeps = 0;
    }
    device.engine->on_doorbells(now, rung.qps);
    for (const CqIndex cq : rung.cqs) device.engine->on_cq_armed(now, cq);
    has_rung = true;
  }
  return has_rung;
}

bool Worker::Impl::receive(Device& device, std::size_t index) {
  const std::size_t count = device.port->receive(burst);
  if (count == 0) return false;
  const auto frames = std::span(burst).first(count);
  // Runs of RoCE frames go to the engine together; others leave the data plane here.
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= count; ++i) {
    const bool is_other =
        i < count && wire::classify_frame(frames[i].bytes()) == wire::FrameClass::kOther;
    if (i < count && !is_other) continue;
    if (i > begin) device.engine->on_frames(now, frames.subspan(begin, i - begin));
    if (is_other) {
      const auto bytes = frames[i].bytes();
      device.counters->add(Counter::punted_frames);
      notify(PuntedFrame{index, {bytes.begin(), bytes.end()}});
    }
    begin = i + 1;
  }
  device.port->release_received(frames);
  return true;
}

bool Worker::Impl::transmit(Device& device) {
  bool has_sent = false;
  if (device.engine->has_transmit_work()) {
    has_sent = device.engine->poll_transmit(now, *device.port, config.transmit_budget) != 0;
  }
  if (!device.port->flush()) device.counters->add(Counter::port_xmit_wait);
  return has_sent;
}

void Worker::Impl::deliver_events() {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    EventOutbox& outbox = *devices[i].outbox;
    if (outbox.has_due() || outbox.is_blocked()) stats.system_calls += outbox.deliver();
    for (const auto& event : outbox.async_events()) notify(DeviceAsyncEvent{i, event});
    outbox.async_events().clear();
  }
}

void Worker::Impl::watch_links() {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    Device& device = devices[i];
    const std::uint64_t discards = device.port->take_discards();
    if (discards != 0) device.counters->add(Counter::port_xmit_discards, discards);
    const bool is_up = device.port->is_link_up();
    if (is_up == device.was_link_up) continue;
    device.was_link_up = is_up;
    device.engine->set_link_up(now, is_up);
    notify(LinkChange{i, is_up});
  }
}

void Worker::Impl::report_faults() {
  const std::uint64_t faults = fault_count();
  if (faults == seen_faults) return;
  seen_faults = faults;
  for (auto& [id, context] : contexts) {
    if (context->is_fault_reported || !is_faulted(id)) continue;
    context->is_fault_reported = true;
    notify(ContextFault{ContextId{id}});
  }
}

void Worker::Impl::notify(Notification&& notification) {
  // Full: control is far behind; a lost ARP request comes again, an event of a full queue is lost
  // as on hardware.
  if (!notifications.try_push(std::move(notification))) return;
  ++stats.system_calls;
  signal_fd(notification_fd);
}

void Worker::Impl::activate(Context& context) {
  if (context.is_active) return;
  context.is_active = true;
  context.doorbells.wake();
  active.push_back(&context);
}

Worker::Worker(const WorkerConfig& config, WorkerBlock& stats)
    : impl_(std::make_unique<Impl>(config, stats)) {}

Worker::~Worker() = default;

std::size_t Worker::add_device(std::unique_ptr<Port> port, const engine::EngineConfig& config,
                               memory::MemoryPort& memory, const memory::MrTable& regions,
                               CounterBlock& counters, Prng prng) {
  ROCEMU_CHECK(!impl_->thread.joinable());
  Device device;
  device.port = std::move(port);
  device.outbox = std::make_unique<EventOutbox>();
  device.counters = &counters;
  device.engine = std::make_unique<engine::Engine>(config, impl_->queues, memory, regions,
                                                   *device.outbox, counters, prng);
  impl_->needs_polling |= device.port->needs_polling();
  impl_->devices.push_back(std::move(device));
  return impl_->devices.size() - 1;
}

void Worker::start() {
  impl_->thread = std::thread([this] { impl_->run_loop(); });
}

void Worker::stop() { impl_->stop(); }

void Worker::run_erased(void (*invoke)(void*), void* arg) {
  if (!impl_->thread.joinable()) {
    invoke(arg);
    return;
  }
  const std::uint32_t ticket = ++impl_->jobs_submitted;
  while (!impl_->jobs.try_push(Job{invoke, arg})) ::sched_yield();
  // Store, then load: pairs with the fence in Impl::try_arm.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (impl_->is_asleep.load(std::memory_order_relaxed) != 0) signal_fd(impl_->job_fd);
  for (std::uint32_t done = ticket - 1; done != ticket;) {
    impl_->jobs_done.wait(done, std::memory_order_acquire);
    done = impl_->jobs_done.load(std::memory_order_acquire);
  }
}

int Worker::notification_fd() const { return impl_->notification_fd; }

std::optional<Notification> Worker::next_notification() {
  auto next = impl_->notifications.try_pop();
  if (next) return next;
  std::uint64_t ignored;
  (void)!::read(impl_->notification_fd, &ignored, sizeof ignored);
  return impl_->notifications.try_pop();
}

engine::Engine& Worker::engine(std::size_t device) { return *impl_->devices.at(device).engine; }
Port& Worker::port(std::size_t device) { return *impl_->devices.at(device).port; }
engine::RxeQueues& Worker::queues() { return impl_->queues; }
Time Worker::now() const { return impl_->now; }

void Worker::add_context(ContextId id, std::size_t device, DoorbellPage* page, int wake_fd,
                         std::span<std::byte> rings) {
  auto context = std::make_unique<Context>(id, device, page, wake_fd);
  guard_range(rings, id.value);
  guard_range({reinterpret_cast<std::byte*>(page), sizeof *page}, id.value);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = context.get();
  ::epoll_ctl(impl_->epoll_fd, EPOLL_CTL_ADD, wake_fd, &event);
  impl_->activate(*context);
  impl_->contexts[id.value] = std::move(context);
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

}  // namespace rocemu::dpdk
