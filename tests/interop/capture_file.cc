#include "tests/interop/capture_file.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

namespace rocemu::interop {

std::vector<Frame> read_pcap(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> data((std::istreambuf_iterator<char>(in)), {});
  std::vector<Frame> frames;
  std::size_t at = 24;
  while (at + 16 <= data.size()) {
    std::uint32_t length = 0;
    std::memcpy(&length, &data[at + 8], 4);
    at += 16;
    if (length > data.size() - at) break;
    const auto* begin = reinterpret_cast<const std::byte*>(&data[at]);
    frames.emplace_back(begin, begin + length);
    at += length;
  }
  return frames;
}

std::vector<nlohmann::json> read_manifest(const std::filesystem::path& folder) {
  std::ifstream in(folder / "manifest.jsonl");
  std::vector<nlohmann::json> out;
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

}  // namespace rocemu::interop
