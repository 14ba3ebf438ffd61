#include "dataplane/wire/headers.h"

#include <algorithm>
#include <cstring>

namespace rocemu::wire {

Gid map_ipv4(const std::byte* address) {
  Gid gid{};
  gid[10] = gid[11] = 0xff;
  std::memcpy(&gid[12], address, 4);
  return gid;
}

bool is_ipv4_mapped(const Gid& gid) {
  return std::all_of(gid.begin(), gid.begin() + 10, [](std::uint8_t b) { return b == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}

bool is_multicast(const Gid& gid) {
  return is_ipv4_mapped(gid) ? (gid[12] & 0xf0) == 0xe0 : gid[0] == 0xff;
}

}  // namespace rocemu::wire
