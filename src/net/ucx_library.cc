#include "net/ucx_library.h"

#if DEEPINFER_UCX
#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>

#include <iterator>
#include <type_traits>

namespace deepinfer {
namespace {

// What it warns of, peers that die above all, is told by who uses it. It would write to the program's output, which is for
// whoever asks for it (UCX_LOG_LEVEL).
ucs_log_func_rc_t say_nothing(const char*, unsigned, const char*, ucs_log_level_t level, const ucs_log_component_config_t* wanted,
                              const char*, va_list) {
  const bool asked = wanted && wanted->log_level > UCS_LOG_LEVEL_WARN;
  return level <= UCS_LOG_LEVEL_WARN && !asked ? UCS_LOG_FUNC_RC_STOP : UCS_LOG_FUNC_RC_CONTINUE;
}

Result<UcxLibrary> load() {
  // Its constructor wants these signals for a report of its own.
  constexpr int kSignals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP};
  struct sigaction before[std::size(kSignals)];
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], nullptr, &before[i]);
  void* const handle = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
  if (!handle) return Error{ErrorCode::kUnsupported, "no UCX here (Debian package libucx0)"};
  UcxLibrary out;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    if (!function) missing = name;
  };
#define DEEPINFER_UCX_FIND(name) find(#name, out.name);
  DEEPINFER_UCX_FUNCTIONS(DEEPINFER_UCX_FIND)
#undef DEEPINFER_UCX_FIND
  if (missing) return unsupported(fmt::format("this UCX has no {}", missing));
  out.ucs_log_push_handler(say_nothing);
  return out;
}

}  // namespace

Result<const UcxLibrary*> ucx_library() {
  static const Result<UcxLibrary> library = load();
  if (!library) return library.error();
  return &*library;
}

}  // namespace deepinfer
#endif
