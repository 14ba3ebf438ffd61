// Links to DPDK ports in words: "memif:/run/x.sock,role=server" becomes the name and the arguments
// that DPDK knows the port by. Text only; what a driver needs to carry our frames is decided here.
#pragma once

#include <string>
#include <string_view>

#include "rocemu/base/result.h"

namespace rocemu::dpdk {

struct PortArguments {
  std::string name;           ///< DPDK's name of the port.
  std::string option;         ///< "--vdev" or "-a".
  std::string devargs;        ///< What follows the option.
  std::string server_socket;  ///< The Unix socket that a memif server listens at; else empty.
};

/// `link`: "memif:SOCKET[,role=server|client][,ARGS]", "af_packet:INTERFACE[,ARGS]",
/// "vdev:NAME[,ARGS]" or "pci:ADDRESS[,ARGS]"; ARGS go to the driver, and win over the defaults
/// here. `device`: name of our device, of which the port's is made. EINVAL with a sentence.
Result<PortArguments> make_port_arguments(std::string_view link, std::string_view device);

}  // namespace rocemu::dpdk
