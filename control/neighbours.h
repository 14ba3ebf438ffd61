// Who is behind which address on a device's link, as ARP and ND told: learnt, asked again when it
// was not confirmed for a while, forgotten when nobody confirms. What the configuration says stays
// for ever. The wire decides how much it shows us, so the table is bounded. Time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>

#include "dataplane/wire/headers.h"

namespace rocemu::control {

class Neighbours {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::size_t kMaxEntries = 4096;
  /// Used without asking again for so long (RFC 4861's REACHABLE_TIME, 30 s).
  static constexpr std::chrono::seconds kFresh{30};
  /// Not used any more after that without a sign of life.
  static constexpr std::chrono::seconds kLifetime{300};

  explicit Neighbours(std::map<wire::Gid, wire::MacAddress> fixed) : fixed_(std::move(fixed)) {}

  struct Found {
    std::optional<wire::MacAddress> mac;
    bool is_to_be_asked = false;  ///< Unknown, or not confirmed for kFresh.
  };
  Found find(const wire::Gid& gid, Time now);
  bool knows(const wire::Gid& gid) const { return fixed_.contains(gid) || learnt_.contains(gid); }
  /// A full table gives up its oldest entry.
  void learn(const wire::Gid& gid, const wire::MacAddress& mac, Time now);
  std::size_t size() const { return fixed_.size() + learnt_.size(); }

 private:
  struct Entry {
    wire::MacAddress mac{};
    Time confirmed_at;
  };
  std::map<wire::Gid, wire::MacAddress> fixed_;
  std::map<wire::Gid, Entry> learnt_;
};

}  // namespace rocemu::control
