#include "dataplane/transport/state_table.h"

#include <array>

namespace rocemu::transport {
namespace {

enum TypeBits : std::uint8_t { kRcBit = 1, kUcBit = 2, kUdBit = 4, kAllTypes = 7 };

constexpr std::uint8_t bit_of(QpType type) {
  switch (type) {
    case QpType::kRc:
      return kRcBit;
    case QpType::kUc:
      return kUcBit;
    case QpType::kUd:
    case QpType::kGsi:
      return kUdBit;
  }
  return 0;
}

struct Row {
  QpState from;
  QpState to;
  std::uint8_t types;
  std::uint32_t required;
  std::uint32_t optional;
};

using enum QpState;

constexpr std::uint32_t kPathOptions = kQpAltPath | kQpPathMigState;
constexpr std::uint32_t kResponderOptions = kQpAccessFlags | kQpPkeyIndex | kQpAltPath;

constexpr std::array kRows = {
    Row{kReset, kInit, kUdBit, kQpPkeyIndex | kQpPort | kQpQkey, 0},
    Row{kReset, kInit, kRcBit | kUcBit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},

    Row{kInit, kInit, kUdBit, 0, kQpPkeyIndex | kQpPort | kQpQkey},
    Row{kInit, kInit, kRcBit | kUcBit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},

    Row{kInit, kRtr, kUdBit, 0, kQpPkeyIndex | kQpQkey},
    Row{kInit, kRtr, kUcBit, kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn, kResponderOptions},
    Row{kInit, kRtr, kRcBit,
        kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
        kResponderOptions},

    Row{kRtr, kRts, kUdBit, kQpSqPsn, kQpCurState | kQpQkey | kQpRateLimit},
    Row{kRtr, kRts, kUcBit, kQpSqPsn, kQpCurState | kQpAccessFlags | kPathOptions | kQpRateLimit},
    Row{kRtr, kRts, kRcBit, kQpSqPsn | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic,
        kQpCurState | kQpAccessFlags | kPathOptions | kQpMinRnrTimer | kQpRateLimit},

    Row{kRts, kRts, kUdBit, 0, kQpCurState | kQpQkey | kQpRateLimit},
    Row{kRts, kRts, kUcBit, 0, kQpCurState | kQpAccessFlags | kPathOptions | kQpRateLimit},
    Row{kRts, kRts, kRcBit, 0,
        kQpCurState | kQpAccessFlags | kPathOptions | kQpMinRnrTimer | kQpRateLimit},

    Row{kRts, kSqd, kAllTypes, 0, kQpEnSqdAsyncNotify},

    Row{kSqd, kRts, kUdBit, 0, kQpCurState | kQpQkey},
    Row{kSqd, kRts, kUcBit, 0, kQpCurState | kQpAccessFlags | kPathOptions},
    Row{kSqd, kRts, kRcBit, 0, kQpCurState | kQpAccessFlags | kPathOptions | kQpMinRnrTimer},

    Row{kSqd, kSqd, kUdBit, 0, kQpPkeyIndex | kQpQkey},
    Row{kSqd, kSqd, kUcBit, 0, kQpAv | kQpAccessFlags | kQpPkeyIndex | kPathOptions},
    Row{kSqd, kSqd, kRcBit, 0,
        kQpPort | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic |
            kQpMaxDestRdAtomic | kQpAccessFlags | kQpPkeyIndex | kQpMinRnrTimer | kPathOptions},

    Row{kSqe, kRts, kUdBit, 0, kQpCurState | kQpQkey},
    Row{kSqe, kRts, kUcBit, 0, kQpCurState | kQpAccessFlags},
};

}  // namespace

std::optional<Transition> find_transition(QpType type, QpState from, QpState to) {
  if (to == kReset || to == kErr) return Transition{};
  for (const Row& row : kRows) {
    if (row.from == from && row.to == to && (row.types & bit_of(type)) != 0) {
      return Transition{row.required, row.optional};
    }
  }
  return std::nullopt;
}

bool is_modify_legal(QpType type, QpState from, QpState to, std::uint32_t mask) {
  const auto transition = find_transition(type, from, to);
  if (!transition) return false;
  const std::uint32_t given = mask & ~std::uint32_t{kQpState};
  if ((given & transition->required) != transition->required) return false;
  return (given & ~(transition->required | transition->optional)) == 0;
}

}  // namespace rocemu::transport
