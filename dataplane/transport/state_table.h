// The QP state machine as data: which transitions modify may make, and which attributes each needs
// and takes (IBTA vol. 1, 10.3.1 and 11.2.5.2, table of QP transition properties).
#pragma once

#include <cstdint>
#include <optional>

#include "dataplane/transport/qp_attr.h"

namespace rocemu::transport {

struct Transition {
  std::uint32_t required = 0;  ///< OR of QpAttrMask, kQpState excluded.
  std::uint32_t optional = 0;
};

/// The rule for a transition of this type, or nothing when it is not allowed.
std::optional<Transition> find_transition(QpType type, QpState from, QpState to);

/// True when `mask` (kQpState included or not) names all that the transition needs and nothing that
/// it does not take.
bool is_modify_legal(QpType type, QpState from, QpState to, std::uint32_t mask);

}  // namespace rocemu::transport
