// Port over a DPDK ethdev: memif, af_packet, tap, ring, a NIC. One receive and one transmit queue.
// Frames live in mbufs; those that the device does not take at once wait here, in order, and hold
// the engine back when they are many. Frames to the port's own address come back without the
// device.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "dataplane/dpdk/port.h"
#include "rocemu/base/result.h"

namespace rocemu::dpdk {

struct EthdevConfig {
  std::string name;                     ///< DPDK's name of the device.
  std::optional<wire::MacAddress> mac;  ///< Instead of the device's own.
  std::uint32_t mtu_bytes = 0;          ///< 0: as large as the device takes, at most 4200.
};

/// After start_eal(). ENODEV, EIO, EINVAL with a sentence.
Result<std::unique_ptr<Port>> make_ethdev_port(const EthdevConfig& config);

}  // namespace rocemu::dpdk
