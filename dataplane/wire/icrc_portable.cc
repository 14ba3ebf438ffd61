// Portable CRC kernel: slicing by eight.
#include "dataplane/wire/icrc_kernels.h"

namespace rocemu::wire {
namespace {

using crc32::Mode;

std::uint32_t update(std::uint32_t state, const std::byte* p, std::size_t n) {
  return crc32::run_scalar<Mode::kUpdate>(state, nullptr, p, n);
}

}  // namespace

constinit const IcrcKernel kPortableKernel = {
    .name = "portable",
    .is_supported = [] { return true; },
    .update = update,
    .copy = crc32::copy_tail_last<crc32::run_scalar<Mode::kCopy>>,
};

}  // namespace rocemu::wire
