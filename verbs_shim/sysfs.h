// Opening emulated sysfs attributes whose text changes: counters.
#pragma once

#include <sys/types.h>

namespace rocemu::shim {

/// A descriptor from which the attribute's text of this moment is read; -1 with errno (the
/// daemon's, or ENODEV without one). `attribute`: path below the sysfs root. `flags`: of open();
/// only O_CLOEXEC counts.
int open_counter(const char* attribute, int flags);

}  // namespace rocemu::shim
