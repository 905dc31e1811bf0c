#include <dlfcn.h>
#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

#include "bench/attention/contender.h"

namespace turboquant::bench {

MakeContenderFn LoadIk(const std::string& path) {
  // Its symbols have the names of the ggml that this program is linked with: each to its own.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  void* symbol = library == nullptr ? nullptr : dlsym(library, "MakeIkContender");
  if (symbol == nullptr) {
    fmt::print(stderr, "--ik: {} (bench/peers/peers.py --build-ik makes that library)\n",
               dlerror());
    std::exit(2);
  }
  return reinterpret_cast<MakeContenderFn>(symbol);
}

}  // namespace turboquant::bench
