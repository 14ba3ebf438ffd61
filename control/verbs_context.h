// One opened verbs context: what one ibv_open_device holds, and what ends when the application
// closes it or dies. It owns the objects, their rings, the event pipes and the binding of the
// client's address space; close and death share the one teardown of its destructor. Control thread
// only; engine and worker are entered through Worker::run.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "control/context_memory.h"
#include "control/device.h"
#include "control/event_pipe.h"
#include "control/handle_table.h"
#include "dataplane/memory/host/address_spaces.h"
#include "dataplane/memory/host/shared_mappings.h"
#include "rocemu/abi/doorbell.h"

namespace rocemu::control {

/// A ring in the context memory.
struct Ring {
  transport::RingRef ref;
  std::uint64_t bytes = 0;
};

struct ProtectionDomain {
  PdId id;
  std::uint32_t users = 0;
};

struct MemoryRegion {
  memory::MrKeys keys;
  std::uint32_t pd = 0;
  std::optional<memory::SharedMapping> mapping;
};

struct MemoryWindow {
  MrIndex index;
  std::uint32_t pd = 0;
};

struct CompletionChannel {
  EventPipe pipe;
  std::uint32_t users = 0;
  bool is_closed = false;  ///< The application closed its end; goes with its last CQ.
};

struct CompletionQueue {
  CqIndex index;
  Ring ring;
  std::uint64_t user_handle = 0;
  std::optional<std::uint32_t> channel;
  std::uint32_t users = 0;
  std::uint32_t async_events = 0;
};

/// A multicast group that a QP is attached to.
struct MulticastGroup {
  wire::Gid gid{};
  std::uint16_t lid = 0;
  bool operator==(const MulticastGroup&) const = default;
};

struct SharedReceiveQueue {
  SrqIndex index;
  std::uint32_t pd = 0;
  Ring ring;
  std::uint64_t user_handle = 0;
  std::uint32_t max_sge = 0;
  std::uint32_t users = 0;
  std::uint32_t async_events = 0;
};

struct QueuePair {
  QpNum number;
  std::uint32_t pd = 0;
  std::uint32_t send_cq = 0;
  std::uint32_t recv_cq = 0;
  std::optional<std::uint32_t> srq;
  Ring send_ring;
  Ring recv_ring;  ///< None with an SRQ.
  std::uint64_t user_handle = 0;
  transport::QpCaps caps;
  bool signal_all = false;
  bool takes_sends = false;  ///< Brought to RTS since it was last below.
  std::uint32_t async_events = 0;
  std::vector<MulticastGroup> groups;
};

struct AddressHandle {
  std::uint32_t pd = 0;
  std::uint32_t number = 0;  ///< In the engine.
};

class VerbsContext {
 public:
  struct Identity {
    ContextId id;
    pid_t pid = 0;
    uid_t uid = 0;
  };
  /// Binds to the image that `identity.pid` runs now. EPERM, ENOMEM, EMFILE.
  static Result<std::unique_ptr<VerbsContext>> open(Device& device, memory::AddressSpaces& spaces,
                                                    const Identity& identity);
  ~VerbsContext();
  VerbsContext(const VerbsContext&) = delete;
  VerbsContext& operator=(const VerbsContext&) = delete;

  int memory_fd() const { return memory_.fd(); }
  int doorbell_fd() const { return doorbells_.fd.get(); }
  int wake_fd() const { return wake_fd_.get(); }
  std::uint64_t doorbell_bytes() const { return doorbells_.bytes.size(); }

  /// Says, to the shim as well, whether work requests may be posted to the send queue.
  void set_takes_sends(std::uint32_t handle, QueuePair& qp, bool takes_sends);

  /// The process is about to execve: nothing of ours touches its memory when this returns.
  void suspend_memory();
  void resume_memory();

  /// Queues an asynchronous event for the application.
  void on_async_event(engine::AsyncEventType type, std::uint32_t handle);
  void push_async(std::uint64_t element, std::uint32_t type);

  // Used by the uverbs commands.

  /// Lays out a ring of at least `entries` usable elements of at least `element_bytes`; the sizes
  /// become powers of two.
  Result<Ring> make_ring(std::uint32_t entries, std::uint32_t element_bytes);
  /// Nothing when the ring is not present.
  void free_ring(const Ring& ring);
  std::span<std::byte> bytes_of(const Ring& ring) const {
    return memory_.bytes().subspan(ring.ref.offset, ring.bytes);
  }
  static std::uint32_t usable_entries(const Ring& ring) { return ring.ref.mask; }

  /// `handle` is what channels.next_handle() said. The channel goes when the application closed
  /// its end and no CQ uses it.
  CompletionChannel& add_channel(std::uint32_t handle, EventPipe pipe);
  void destroy_qp(std::uint32_t handle, QueuePair& qp);
  /// Returns completion and asynchronous events that the application read.
  struct Reported {
    std::uint32_t completion_events = 0;
    std::uint32_t async_events = 0;
  };
  Reported destroy_cq(std::uint32_t handle, CompletionQueue& cq);
  /// Returns asynchronous events that the application read.
  std::uint32_t destroy_srq(std::uint32_t handle, SharedReceiveQueue& srq);
  /// EINVAL while windows are bound to the region.
  int destroy_mr(std::uint32_t handle, MemoryRegion& mr);
  void destroy_mw(std::uint32_t handle, const MemoryWindow& mw);
  void destroy_pd(std::uint32_t handle);
  void destroy_ah(std::uint32_t handle, AddressHandle& ah);
  std::uint32_t withdraw_async(std::uint64_t element);
  /// Stores a CQ's arm word, as the shim does.
  void arm(std::uint32_t cq_handle, CqArm value);

  Device& device;
  memory::AddressSpaces& spaces;
  const Identity identity;
  SpaceId space;
  EventPipe async_pipe;
  HandleTable<ProtectionDomain> pds;
  HandleTable<MemoryRegion> mrs;
  HandleTable<MemoryWindow> mws;
  HandleTable<CompletionChannel> channels;
  HandleTable<CompletionQueue> cqs;
  HandleTable<SharedReceiveQueue> srqs;
  HandleTable<QueuePair> qps;
  HandleTable<AddressHandle> ahs;
  RegionId doorbell_region;

 private:
  VerbsContext(Device& the_device, memory::AddressSpaces& the_spaces, const Identity& who,
               ContextMemory memory, SharedPages doorbells, EventPipe pipe, UniqueFd wake_fd);

  void retry_async();
  void release_channel_if_unused(std::uint32_t handle);
  void destroy_queue_pairs();

  DoorbellPage* page() const { return reinterpret_cast<DoorbellPage*>(doorbells_.bytes.data()); }

  ContextMemory memory_;
  SharedPages doorbells_;
  UniqueFd wake_fd_;
  RegionId ring_region_;
  std::optional<EventLoop::TimerId> async_retry_;
};

}  // namespace rocemu::control
