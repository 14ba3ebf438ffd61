// A stand-in for libibverbs with two providers, to test the poll_cq overlay against: it is found
// under the real library's name and symbol version, and its devices are numbers. Device 0 and 1 are
// emulated ones with a provider each; device 2 is real hardware, which must be left alone.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>

extern "C" {
extern std::atomic<int> fake_polls[3];
std::atomic<int> fake_polls[3];
}

namespace {

template <int Provider>
int poll(ibv_cq* cq, int, ibv_wc*) {
  ++fake_polls[Provider];
  return static_cast<int>(reinterpret_cast<std::intptr_t>(cq));  // the probe says what to return
}

}  // namespace

extern "C" ibv_context* ibv_open_device(ibv_device* device) {
  const auto number = reinterpret_cast<std::uintptr_t>(device);
  auto* context = new (std::nothrow) ibv_context{};
  if (context == nullptr) return nullptr;
  context->cmd_fd = open(number == 2 ? "/dev/null" : "/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
  context->ops.poll_cq = number == 0 ? poll<0> : number == 1 ? poll<1> : poll<2>;
  return context;
}

extern "C" int ibv_close_device(ibv_context* context) {
  close(context->cmd_fd);
  delete context;
  return 0;
}
