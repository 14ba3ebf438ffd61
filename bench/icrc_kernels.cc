// Throughput of the ICRC kernels beside memcpy, on the same buffers: 4096-byte payloads, 15 samples
// each, in turn.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "dataplane/wire/icrc.h"

namespace {

constexpr std::size_t kPayload = 4096;
constexpr int kRounds = 20'000;
constexpr int kSamples = 15;

double gigabytes_per_second(const std::function<void()>& once) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) once();
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  return double{kPayload} * kRounds / spent.count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main() {
  std::vector<std::byte> from(kPayload, std::byte{0x5a});
  std::vector<std::byte> to(kPayload);
  std::uint32_t state = 0;
  struct Row {
    const char* name;
    std::function<void()> once;
    std::vector<double> samples;
  };
  std::vector<Row> rows;
  rows.push_back({"memcpy", [&] { std::memcpy(to.data(), from.data(), kPayload); }, {}});
  for (const auto& kernel : rocemu::wire::icrc_kernels()) {
    if (!kernel.is_supported()) continue;
    rows.push_back(
        {kernel.name.data(),
         [&, copy = kernel.copy] { state = copy(state, to.data(), from.data(), kPayload); },
         {}});
  }
  for (int sample = 0; sample < kSamples; ++sample) {
    for (Row& row : rows) row.samples.push_back(gigabytes_per_second(row.once));
  }
  std::printf("%-10s %8s %8s %8s %8s  GB/s\n", "kernel", "median", "MAD", "min", "max");
  for (const Row& row : rows) {
    const double middle = median(row.samples);
    std::vector<double> distances;
    for (const double v : row.samples) distances.push_back(std::abs(v - middle));
    const auto [low, high] = std::ranges::minmax(row.samples);
    std::printf("%-10s %8.1f %8.1f %8.1f %8.1f\n", row.name, middle, median(distances), low, high);
  }
  std::printf("(state %08x)\n", state);
  return 0;
}
