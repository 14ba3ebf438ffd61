#include "verbs_shim/overlay_library.h"

#include <dlfcn.h>

#include <cerrno>

namespace rocemu::shim {

void* find_in_libibverbs(const char* name) {
  constexpr char kVersion[] = "IBVERBS_1.1";
  const int saved = errno;
  void* found = dlvsym(RTLD_NEXT, name, kVersion);
  if (found == nullptr) {
    void* library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library != nullptr) {
      found = dlvsym(library, name, kVersion);
      dlclose(library);  // the application's reference keeps it
    }
  }
  errno = saved;
  return found;
}

}  // namespace rocemu::shim
