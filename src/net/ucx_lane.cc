#include "net/side_lane.h"

#if DEEPINFER_UCX
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <unordered_map>
#include <utility>

#include "net/ucx_library.h"

namespace deepinfer {
namespace {

constexpr unsigned kMessage = 1;  // of active messages
constexpr int kSteps = 64;        // of a turn: connections want theirs, too
constexpr auto kLeaveFor = std::chrono::milliseconds(500);
// Without its own TCP: a port that hears strangers, for no gain over the connection that there is anyway.
constexpr const char* kTransports = "shm,ib";

class UcxLane final : public SideLane {
 public:
  UcxLane(const UcxLibrary& ucx, size_t max_bytes) : ucx_(ucx), max_bytes_(max_bytes) {}

  ~UcxLane() override {
    if (worker_) {
      while (!peers_.empty()) leave(peers_.begin()->first);
      const auto until = std::chrono::steady_clock::now() + kLeaveFor;
      while (open_ > 0 && std::chrono::steady_clock::now() < until) ucx_.ucp_worker_progress(worker_);
      if (address_) ucx_.ucp_worker_release_address(worker_, address_);
      ucx_.ucp_worker_destroy(worker_);
    }
    if (context_) ucx_.ucp_cleanup(context_);
  }

  Status start() {
    DI_CHECK_OK(open_context());
    ucp_worker_params_t how{};
    how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    how.thread_mode = UCS_THREAD_MODE_SERIALIZED;
    DI_CHECK_OK(good(ucx_.ucp_worker_create(context_, &how, &worker_), "a worker"));
    DI_CHECK_OK(good(ucx_.ucp_worker_get_efd(worker_, &handle_), "wake-ups"));
    ucp_am_handler_param_t on{};
    on.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    on.id = kMessage;
    on.cb = &UcxLane::come;
    on.arg = this;
    DI_CHECK_OK(good(ucx_.ucp_worker_set_am_recv_handler(worker_, &on), "messages"));
    return good(ucx_.ucp_worker_get_address(worker_, &address_, &address_bytes_), "an address");
  }

  std::string_view address() const override { return {reinterpret_cast<const char*>(address_), address_bytes_}; }
  int handle() const override { return handle_; }

  void expect(uint64_t link, const std::string& key) override {
    links_[key] = link;
    peers_[link].mine = key;
  }

  Status join(uint64_t link, std::string_view address, const std::string& key) override {
    Peer& peer = peers_[link];
    ucp_ep_params_t to{};
    to.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    to.address = reinterpret_cast<const ucp_address_t*>(address.data());
    to.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    to.err_handler = {.cb = &UcxLane::fail, .arg = this};
    DI_CHECK_OK(good(ucx_.ucp_ep_create(worker_, &to, &peer.end), "a way to the peer"));
    peer.theirs = key;
    return {};
  }

  void send(uint64_t link, uint64_t number, std::string bytes, size_t skip) override {
    const Peer& peer = peers_[link];
    Send* const out = &sends_.emplace_front(Send{*this, link, number, std::move(bytes), peer.theirs});
    out->self = sends_.begin();
    out->head.append(reinterpret_cast<const char*>(&number), sizeof(number));
    ucp_request_param_t how = completion(out);
    how.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_AM_SEND_FLAG_RNDV;  // the receiver fetches it
    how.cb.send = [](void* request, ucs_status_t status, void* out) { sent(static_cast<Send*>(out), request, status); };
    const ucs_status_ptr_t given = ucx_.ucp_am_send_nbx(peer.end, kMessage, out->head.data(), out->head.size(),
                                                        out->bytes.data() + skip, out->bytes.size() - skip, &how);
    if (UCS_PTR_IS_PTR(given)) return void(++open_);
    sent(out, nullptr, UCS_PTR_STATUS(given));
  }

  void leave(uint64_t link) override {
    const auto found = peers_.find(link);
    if (found == peers_.end()) return;
    const ucp_ep_h end = found->second.end;
    links_.erase(found->second.mine);
    peers_.erase(found);
    if (!end) return;
    ucp_request_param_t how = completion(this);
    how.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = UCP_EP_CLOSE_FLAG_FORCE;
    how.cb.send = [](void* request, ucs_status_t, void* lane) { static_cast<UcxLane*>(lane)->done(request); };
    if (UCS_PTR_IS_PTR(ucx_.ucp_ep_close_nbx(end, &how))) ++open_;
  }

  bool turn(std::vector<LaneEvent>& events) override {
    bool more = true;
    for (int i = 0; more && i < kSteps; ++i) {
      more = ucx_.ucp_worker_progress(worker_) > 0 || ucx_.ucp_worker_arm(worker_) == UCS_ERR_BUSY;
    }
    for (LaneEvent& event : events_) events.push_back(std::move(event));
    events_.clear();
    return more;
  }

 private:
  struct Peer {
    ucp_ep_h end = nullptr;
    std::string mine, theirs;
  };
  struct Send {
    UcxLane& lane;
    uint64_t link, number;
    std::string bytes, head;
    std::list<Send>::iterator self = {};
  };
  struct Receive {
    UcxLane& lane;
    uint64_t link, number;
    LaneBytes bytes;
    std::list<Receive>::iterator self = {};
  };

  Status good(ucs_status_t status, const char* what) const {
    if (status == UCS_OK) return {};
    return Error{ErrorCode::kUnsupported, fmt::format("UCX, {}: {}", what, ucx_.ucs_status_string(status))};
  }

  static ucp_request_param_t completion(void* of) {
    ucp_request_param_t out{};
    out.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    out.user_data = of;
    return out;
  }

  // UCX_TLS is the operator's.
  bool names_transports(const ucp_config_t* config) const {
    char* text = nullptr;
    size_t size = 0;
    FILE* const out = ::open_memstream(&text, &size);
    if (!out) return false;
    ucx_.ucp_config_print(config, out, nullptr, UCS_CONFIG_PRINT_CONFIG);
    ::fclose(out);
    const std::string_view all(text, size);
    const bool named = all.find("UCX_TLS=") != std::string_view::npos && all.find("UCX_TLS=all\n") == std::string_view::npos;
    ::free(text);
    return named;
  }

  Status open_context() {
    ucp_config_t* config = nullptr;
    DI_CHECK_OK(good(ucx_.ucp_config_read(nullptr, nullptr, &config), "settings"));
    if (!names_transports(config)) ucx_.ucp_config_modify(config, "TLS", kTransports);
    // Without these, shared memory is not for peers whose death is to be told; the second is what copies at once, from one
    // process's memory into the other's: four times as fast. That a peer may read what has been freed is for checksums.
    ucx_.ucp_config_modify(config, "MM_ERROR_HANDLING", "y");
    ucx_.ucp_config_modify(config, "MEMORY_INVALIDATE", "y");
    ucp_params_t how{};
    how.field_mask = UCP_PARAM_FIELD_FEATURES;
    how.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    const ucs_status_t status = ucx_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &how, config, &context_);
    ucx_.ucp_config_release(config);
    return good(status, "transport");
  }

  void done(void* request) {
    if (!request) return;
    --open_;
    ucx_.ucp_request_free(request);
  }

  // What follows is called from inside of UCX: it notes, and nothing more.

  void note_broken(uint64_t link, ucs_status_t status) {
    events_.push_back({.kind = LaneEvent::Kind::kBroke, .link = link, .why = ucx_.ucs_status_string(status)});
  }

  static void sent(Send* send, void* request, ucs_status_t status) {
    UcxLane& lane = send->lane;
    std::list<Send> over;  // until the end of this
    over.splice(over.begin(), lane.sends_, send->self);
    lane.done(request);
    if (status != UCS_OK) return lane.note_broken(send->link, status);
    lane.events_.push_back({.kind = LaneEvent::Kind::kSent, .link = send->link, .number = send->number});
  }

  static void received(Receive* in, void* request, ucs_status_t status) {
    UcxLane& lane = in->lane;
    std::list<Receive> over;
    over.splice(over.begin(), lane.receives_, in->self);
    lane.done(request);
    if (status != UCS_OK) return lane.note_broken(in->link, status);
    lane.events_.push_back({.link = in->link, .bytes = std::move(in->bytes), .number = in->number});
  }

  static ucs_status_t come(void* arg, const void* head, size_t head_bytes, void* data, size_t bytes,
                           const ucp_am_recv_param_t* param) {
    return static_cast<UcxLane*>(arg)->take({static_cast<const char*>(head), head_bytes}, data, bytes, param->recv_attr);
  }

  ucs_status_t take(std::string_view head, void* data, size_t bytes, uint64_t attributes) {
    if (head.size() != kKeyBytes + sizeof(uint64_t) || bytes > max_bytes_) return UCS_OK;
    const auto found = links_.find(std::string(head.substr(0, kKeyBytes)));
    if (found == links_.end()) return UCS_OK;
    Receive* const in =
        &receives_.emplace_front(Receive{*this, found->second, 0, {std::make_unique_for_overwrite<uint8_t[]>(bytes), bytes}});
    in->self = receives_.begin();
    std::memcpy(&in->number, head.data() + kKeyBytes, sizeof(in->number));
    if (!(attributes & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
      std::memcpy(in->bytes.data.get(), data, bytes);
      received(in, nullptr, UCS_OK);
      return UCS_OK;
    }
    ucp_request_param_t how = completion(in);
    how.cb.recv_am = [](void* request, ucs_status_t status, size_t, void* in) {
      received(static_cast<Receive*>(in), request, status);
    };
    const ucs_status_ptr_t given = ucx_.ucp_am_recv_data_nbx(worker_, data, in->bytes.data.get(), bytes, &how);
    if (UCS_PTR_IS_PTR(given))
      ++open_;
    else
      received(in, nullptr, UCS_PTR_STATUS(given));
    return UCS_INPROGRESS;
  }

  static void fail(void* arg, ucp_ep_h end, ucs_status_t status) {
    auto& lane = *static_cast<UcxLane*>(arg);
    for (const auto& [link, peer] : lane.peers_) {
      if (peer.end == end) lane.note_broken(link, status);
    }
  }

  const UcxLibrary& ucx_;
  const size_t max_bytes_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_address_t* address_ = nullptr;
  size_t address_bytes_ = 0;
  int handle_ = -1;
  int64_t open_ = 0;  // requests of UCX that will call back
  std::unordered_map<uint64_t, Peer> peers_;
  std::unordered_map<std::string, uint64_t> links_;  // by the key that the peer was given
  std::vector<LaneEvent> events_;
  // What UCX has in hand. What it never calls back about, when a lane goes while much is under way, goes behind the worker.
  std::list<Send> sends_;
  std::list<Receive> receives_;
};

}  // namespace

Result<std::unique_ptr<SideLane>> SideLane::open(size_t max_bytes) {
  DI_TRY(const UcxLibrary* const ucx, ucx_library());
  auto lane = std::make_unique<UcxLane>(*ucx, max_bytes);
  DI_CHECK_OK(lane->start());
  return std::unique_ptr<SideLane>(std::move(lane));
}

Result<std::string> side_lane_version() {
  DI_TRY(const UcxLibrary* const ucx, ucx_library());
  DI_TRY(const auto lane, SideLane::open(1));  // a library alone is no lane: shared memory may be too small for one
  return std::string(ucx->ucp_get_version_string());
}

}  // namespace deepinfer
#else
namespace deepinfer {

Result<std::unique_ptr<SideLane>> SideLane::open(size_t) { return unsupported("this program was built without UCX"); }
Result<std::string> side_lane_version() { return unsupported("this program was built without UCX"); }

}  // namespace deepinfer
#endif
