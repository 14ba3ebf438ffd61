// The backends that enter the kernel, against real processes: faults in the middle of a batch,
// execve and pid reuse under incoming writes, read-only and truncatable memory, shared memory
// mapped, atomics from two threads.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/memory/host/address_spaces.h"
#include "dataplane/memory/host/copy_port.h"
#include "dataplane/memory/host/shared_mappings.h"

namespace rocemu::memory {
namespace {

constexpr std::size_t kPage = 4096;
constexpr char kProbeOption[] = "--exec-probe";

std::byte* map_pages(std::size_t pages, int flags, void* at = nullptr) {
  void* p = ::mmap(at, pages * kPage, PROT_READ | PROT_WRITE, flags, -1, 0);
  EXPECT_NE(p, MAP_FAILED);
  return static_cast<std::byte*>(p);
}

std::uint64_t address(const std::byte* p) { return reinterpret_cast<std::uint64_t>(p); }

// A child that does `prepare`, says so, and waits until it is told to go on with `finish`, whose
// result is its exit code.
class Child {
 public:
  explicit Child(
      const std::function<void()>& prepare, const std::function<int()>& finish = [] { return 0; }) {
    EXPECT_EQ(::pipe(ready_), 0);
    EXPECT_EQ(::pipe(go_), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      prepare();
      char byte = 1;
      (void)!::write(ready_[1], &byte, 1);
      (void)!::read(go_[0], &byte, 1);
      ::_exit(finish());
    }
    char byte = 0;
    EXPECT_EQ(::read(ready_[0], &byte, 1), 1);
  }
  ~Child() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {ready_[0], ready_[1], go_[0], go_[1]}) ::close(fd);
  }
  void go() {
    const char byte = 1;
    EXPECT_EQ(::write(go_[1], &byte, 1), 1);
  }
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int ready_[2];
  int go_[2];
};

Move make_move(SpaceId space, Direction direction, std::uint64_t va, std::byte* local,
               std::uint32_t length) {
  return {.space = space,
          .direction = direction,
          .status = MoveStatus::kPending,
          .length = length,
          .client_va = va,
          .direct = nullptr,
          .local = local};
}

TEST(CopyPort, FaultInTheMiddleOfABatchFailsThatMoveOnlyBothWays) {
  std::byte* memory = map_pages(3, MAP_PRIVATE | MAP_ANONYMOUS);
  std::memset(memory, 0x11, 3 * kPage);
  Child child([&] { ::munmap(memory + kPage, kPage); });
  AddressSpaces spaces(4);
  const SpaceId space = spaces.open(child.pid()).value();
  CopyPort port(spaces);
  for (const Direction direction : {Direction::kFromClient, Direction::kToClient}) {
    std::array<std::byte, 256> local{};
    std::vector<Move> moves;
    // The middle three are one range in the client, so that they are one call.
    for (const std::uint64_t offset :
         {std::uint64_t{0}, kPage - 32, kPage, kPage + 32, 2 * kPage}) {
      moves.push_back(make_move(space, direction, address(memory) + offset, local.data(), 32));
    }
    port.move(moves);
    EXPECT_EQ(moves[0].status, MoveStatus::kDone);
    EXPECT_EQ(moves[1].status, MoveStatus::kDone);
    EXPECT_EQ(moves[2].status, MoveStatus::kFault);
    EXPECT_EQ(moves[3].status, MoveStatus::kFault);
    EXPECT_EQ(moves[4].status, MoveStatus::kDone);
  }
  ::munmap(memory, 3 * kPage);
}

TEST(CopyPort, ManyNeighbouringMovesAreFewCallsAndOrderIsKept) {
  std::byte* memory = map_pages(64, MAP_PRIVATE | MAP_ANONYMOUS);
  std::memset(memory, 0, 64 * kPage);
  Child child([] {});
  AddressSpaces spaces(4);
  const SpaceId space = spaces.open(child.pid()).value();
  CopyPort port(spaces);
  std::vector<std::byte> out(5000 * 50);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 7);
  std::vector<Move> moves;
  for (std::uint32_t i = 0; i < 5000; ++i) {
    moves.push_back(
        make_move(space, Direction::kToClient, address(memory) + i * 50, &out[i * 50], 50));
  }
  // What was just written is read back in the same batch.
  std::vector<std::byte> in(out.size());
  moves.push_back(make_move(space, Direction::kFromClient, address(memory), in.data(),
                            static_cast<std::uint32_t>(in.size())));
  port.move(moves);
  for (const Move& move : moves) ASSERT_EQ(move.status, MoveStatus::kDone);
  EXPECT_EQ(in, out);
  EXPECT_LE(port.system_calls(), 7u);
  ::munmap(memory, 64 * kPage);
}

TEST(CopyPort, AddressesThatAreNoneFault) {
  Child child([] {});
  AddressSpaces spaces(4);
  const SpaceId space = spaces.open(child.pid()).value();
  CopyPort port(spaces);
  std::array<std::byte, 8> local{};
  for (const std::uint64_t va : {std::uint64_t{0}, std::uint64_t{1} << 63, ~std::uint64_t{0} - 7}) {
    for (const Direction direction : {Direction::kFromClient, Direction::kToClient}) {
      std::array moves = {make_move(space, direction, va, local.data(), 8)};
      port.move(moves);
      EXPECT_EQ(moves[0].status, MoveStatus::kFault) << va;
    }
  }
}

// The new program: maps the same address, fills it, looks on for a while, and says whether a byte
// changed.
int run_exec_probe(const char* where) {
  auto* at = reinterpret_cast<std::byte*>(std::strtoull(where, nullptr, 16));
  void* p = ::mmap(at, kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (p != at) return 3;
  std::memset(at, 0x77, kPage);
  const volatile std::byte* look = at;
  for (int i = 0; i < 300; ++i) {
    ::usleep(1000);
    for (std::size_t b = 0; b < kPage; ++b) {
      if (look[b] != std::byte{0x77}) return 4;
    }
  }
  return 0;
}

TEST(AddressSpaces, ExecveUnderIncomingWritesNeverTouchesTheNewProgram) {
  constexpr std::uint64_t kWhere = 0x3000'0000'0000;  // free with and without a sanitizer
  std::byte* memory = map_pages(1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                                reinterpret_cast<void*>(kWhere));
  ASSERT_EQ(address(memory), kWhere);
  Child child([] {},
              [] {
                ::execl("/proc/self/exe", "probe", kProbeOption, "300000000000", nullptr);
                return 5;
              });
  AddressSpaces spaces(4);
  const SpaceId space = spaces.open(child.pid()).value();
  CopyPort port(spaces);
  std::array<std::byte, 64> local;
  local.fill(std::byte{0x55});
  const auto write_once = [&] {
    std::array moves = {make_move(space, Direction::kToClient, kWhere, local.data(), 64)};
    port.move(moves);
    return moves[0].status;
  };
  ASSERT_EQ(write_once(), MoveStatus::kDone);
  child.go();
  std::size_t faults = 0;
  std::size_t writes = 0;
  int status = 0;
  while (::waitpid(child.pid(), &status, WNOHANG) == 0) {
    faults += write_once() == MoveStatus::kFault;
    ++writes;
  }
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "4: the new program's memory was written to";
  EXPECT_GT(faults, writes / 2);
  ::munmap(memory, kPage);
}

TEST(AddressSpaces, ReusedPidIsAnotherSpace) {
  std::byte* memory = map_pages(1, MAP_PRIVATE | MAP_ANONYMOUS);
  std::memset(memory, 0x22, kPage);
  AddressSpaces spaces(4);
  CopyPort port(spaces);
  SpaceId space;
  pid_t pid = 0;
  {
    Child child([] {});
    pid = child.pid();
    space = spaces.open(pid).value();
  }
  // The same number again, where the kernel lets us choose; the dead space must fault either way.
  pid_t again = 0;
  for (int i = 0; i < 20 && again != pid; ++i) {
    std::ofstream("/proc/sys/kernel/ns_last_pid") << pid - 1;
    again = ::fork();
    if (again == 0) {
      ::pause();
      ::_exit(0);
    }
    if (again != pid) {
      ::kill(again, SIGKILL);
      ::waitpid(again, nullptr, 0);
    }
  }
  if (::geteuid() == 0) {
    EXPECT_EQ(again, pid) << "the pid could not be reused";
  }
  std::array<std::byte, 8> local{};
  std::array moves = {make_move(space, Direction::kToClient, address(memory), local.data(), 8)};
  port.move(moves);
  EXPECT_EQ(moves[0].status, MoveStatus::kFault);
  if (again == pid) {
    ::kill(again, SIGKILL);
    ::waitpid(again, nullptr, 0);
  }
  ::munmap(memory, kPage);
}

TEST(AddressSpaces, SuspendedSpacesFaultUntilTheyResume) {
  std::byte* memory = map_pages(1, MAP_PRIVATE | MAP_ANONYMOUS);
  Child child([] {});
  AddressSpaces spaces(4);
  const SpaceId space = spaces.open(child.pid()).value();
  CopyPort port(spaces);
  std::array<std::byte, 8> local{};
  const auto write_once = [&] {
    std::array moves = {make_move(space, Direction::kToClient, address(memory), local.data(), 8)};
    port.move(moves);
    return moves[0].status;
  };
  EXPECT_EQ(write_once(), MoveStatus::kDone);
  spaces.suspend(space);
  EXPECT_EQ(write_once(), MoveStatus::kFault);
  spaces.resume(space);
  EXPECT_EQ(write_once(), MoveStatus::kDone);
  ::munmap(memory, kPage);
}

TEST(AddressSpaces, ProbeFindsHolesAndRights) {
  std::byte* memory = map_pages(4, MAP_PRIVATE | MAP_ANONYMOUS);
  ::mprotect(memory + 2 * kPage, kPage, PROT_READ);
  Child child([&] { ::munmap(memory + 3 * kPage, kPage); });
  AddressSpaces spaces(4);
  const SpaceId space = spaces.open(child.pid()).value();
  const std::uint64_t va = address(memory);
  EXPECT_TRUE(spaces.probe_range(space, va, 2 * kPage, RangeAccess::kReadWrite).ok());
  EXPECT_TRUE(spaces.probe_range(space, va + 5, 3 * kPage - 5, RangeAccess::kRead).ok());
  EXPECT_FALSE(spaces.probe_range(space, va, 3 * kPage, RangeAccess::kReadWrite).ok());
  EXPECT_FALSE(spaces.probe_range(space, va, 3 * kPage + 1, RangeAccess::kRead).ok());
  EXPECT_FALSE(spaces.probe_range(space, ~std::uint64_t{0} - 4, 8, RangeAccess::kRead).ok());
  EXPECT_TRUE(spaces.probe_range(space, va, 0, RangeAccess::kRead).ok());
  EXPECT_FALSE(spaces.probe_range(space, 16, 8, RangeAccess::kRead).ok());
  ::munmap(memory, 4 * kPage);
}

TEST(SharedMappings, AnonymousSharedMemoryIsMappedAndTruncatableFilesAreNot) {
  std::byte* shared = map_pages(4, MAP_SHARED | MAP_ANONYMOUS);
  std::byte* own = map_pages(1, MAP_PRIVATE | MAP_ANONYMOUS);
  const int loose = ::memfd_create("loose", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  const int sealed = ::memfd_create("sealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  for (const int fd : {loose, sealed}) ASSERT_EQ(::ftruncate(fd, kPage), 0);
  ASSERT_EQ(::fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  auto* on_loose =
      static_cast<std::byte*>(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, loose, 0));
  auto* on_sealed = static_cast<std::byte*>(
      ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, sealed, 0));
  Child child([] {}, [&] { return shared[kPage + 10] == std::byte{0x42} ? 0 : 6; });
  AddressSpaces spaces(4);
  const SpaceId space = spaces.open(child.pid()).value();
  const auto map = [&](const std::byte* p, std::uint64_t length) {
    return SharedMapping::map(spaces, space, address(p), length, RangeAccess::kReadWrite);
  };
  EXPECT_FALSE(map(own, 100).has_value());
  EXPECT_FALSE(map(on_loose, 100).has_value());
  EXPECT_FALSE(map(shared + kPage, 8 * kPage).has_value());
  auto mapping = map(shared + kPage + 10, 100);
  if (::geteuid() == 0) {  // without rights the range is copied, which is allowed everywhere
    ASSERT_TRUE(mapping.has_value());
    EXPECT_TRUE(map(on_sealed, 100).has_value());
    mapping->data()[0] = std::byte{0x42};
    child.go();
    EXPECT_EQ(child.wait(), 0);
  }
}

TEST(CopyPort, AtomicsOfTwoPortsExcludeEachOther) {
  std::byte* memory = map_pages(1, MAP_SHARED | MAP_ANONYMOUS);
  Child child([] {});
  AddressSpaces spaces(4);
  const SpaceId space = spaces.open(child.pid()).value();
  constexpr std::uint64_t kEach = 5000;
  const auto add_many = [&] {
    CopyPort port(spaces);
    for (std::uint64_t i = 0; i < kEach; ++i) {
      AtomicMove op{.space = space,
                    .kind = AtomicKind::kFetchAdd,
                    .status = MoveStatus::kPending,
                    .client_va = address(memory),
                    .direct = nullptr,
                    .compare = 0,
                    .swap_or_add = 3,
                    .original = 0};
      port.atomic(op);
      ASSERT_EQ(op.status, MoveStatus::kDone);
    }
  };
  std::thread other(add_many);
  add_many();
  other.join();
  std::uint64_t sum = 0;
  std::memcpy(&sum, memory, sizeof sum);
  EXPECT_EQ(sum, 2 * kEach * 3);
  ::munmap(memory, kPage);
}

// A program polls the word while it is written by copying: it sees old or new, never a mixture.
TEST(CopyPort, AtomicWritesAreNeverSeenTorn) {
  std::byte* memory = map_pages(1, MAP_SHARED | MAP_ANONYMOUS);
  constexpr std::uint64_t kWords[2] = {0x1111111111111111, 0xeeeeeeeeeeeeeeee};
  std::memcpy(memory, kWords, sizeof kWords[0]);
  Child child([] {},
              [=] {
                std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(memory));
                std::uint64_t changes = 0;
                std::uint64_t last = kWords[0];
                for (std::uint64_t now = last; now != 0; now = word.load()) {
                  if (now != kWords[0] && now != kWords[1]) return 1;
                  changes += now != last ? 1 : 0;
                  last = now;
                }
                return changes > 1 ? 0 : 2;
              });
  AddressSpaces spaces(4);
  CopyPort port(spaces);
  const SpaceId space = spaces.open(child.pid()).value();
  child.go();
  const auto write_word = [&](std::uint64_t value) {
    AtomicMove op{.space = space,
                  .kind = AtomicKind::kWrite,
                  .client_va = address(memory),
                  .swap_or_add = value};
    port.atomic(op);
    ASSERT_EQ(op.status, MoveStatus::kDone);
  };
  for (std::uint64_t i = 0; i < 200'000; ++i) write_word(kWords[i & 1]);
  write_word(0);
  EXPECT_EQ(child.wait(), 0);
  ::munmap(memory, kPage);
}

}  // namespace
}  // namespace rocemu::memory

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], rocemu::memory::kProbeOption) == 0) {
    return rocemu::memory::run_exec_probe(argv[2]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
