// net/ucx_library.h - libucp, loaded when it is first wanted. Inside the room only.
//
// It is no library that the program is linked to: its constructors cost every start, and take over signals of broken memory.
// Threads: any.
#pragma once

#if DEEPINFER_UCX
#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include "base/result.h"

// clang-format off
#define DEEPINFER_UCX_FUNCTIONS(X) \
  X(ucp_get_version_string) X(ucp_config_read) X(ucp_config_modify) X(ucp_config_print) X(ucp_config_release) \
  X(ucp_init_version) X(ucp_cleanup) X(ucp_worker_create) X(ucp_worker_destroy) X(ucp_worker_get_efd) \
  X(ucp_worker_arm) X(ucp_worker_progress) X(ucp_worker_get_address) X(ucp_worker_release_address) \
  X(ucp_worker_set_am_recv_handler) X(ucp_ep_create) X(ucp_ep_close_nbx) X(ucp_am_send_nbx) \
  X(ucp_am_recv_data_nbx) X(ucp_request_free) X(ucs_status_string) X(ucs_log_push_handler)
// clang-format on

namespace deepinfer {

struct UcxLibrary {
#define DEEPINFER_UCX_MEMBER(name) decltype(&::name) name = nullptr;
  DEEPINFER_UCX_FUNCTIONS(DEEPINFER_UCX_MEMBER)
#undef DEEPINFER_UCX_MEMBER
};

// The same one for the whole process.
Result<const UcxLibrary*> ucx_library();

}  // namespace deepinfer
#endif
