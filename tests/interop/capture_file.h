// The captures of Linux Soft-RoCE as test data: frames of a pcap file, lines of the manifest.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

namespace rocemu::interop {

using Frame = std::vector<std::byte>;

/// All frames of a classic little-endian pcap file, as tcpdump writes it; what follows a truncated
/// record is left out.
std::vector<Frame> read_pcap(const std::filesystem::path& path);

/// One object a capture: file, what it shows, counts that tshark made of it.
std::vector<nlohmann::json> read_manifest(const std::filesystem::path& folder);

}  // namespace rocemu::interop
