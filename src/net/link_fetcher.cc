#include "net/link_fetcher.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/clock.h"
#include "net/http_client.h"

namespace deepinfer {

namespace {

namespace ip = boost::asio::ip;

struct Block {
  const char* network;
  int bits;
};

// The special-purpose registries of IANA. Of IPv6 only 2000::/3 is handed out at all.
constexpr std::array kSpecialV4 = std::to_array<Block>({{"0.0.0.0", 8},
                                                        {"10.0.0.0", 8},
                                                        {"100.64.0.0", 10},
                                                        {"127.0.0.0", 8},
                                                        {"169.254.0.0", 16},
                                                        {"172.16.0.0", 12},
                                                        {"192.0.0.0", 24},
                                                        {"192.0.2.0", 24},
                                                        {"192.88.99.0", 24},
                                                        {"192.168.0.0", 16},
                                                        {"198.18.0.0", 15},
                                                        {"198.51.100.0", 24},
                                                        {"203.0.113.0", 24},
                                                        {"224.0.0.0", 3}});
constexpr std::array kSpecialV6 = std::to_array<Block>({{"2001::", 23}, {"2001:db8::", 32}, {"2002::", 16}, {"3fff::", 20}});

template <class Bytes>
bool within(const Bytes& bytes, const Bytes& network, int bits) {
  for (size_t i = 0; bits > 0; ++i, bits -= 8) {
    const auto mask = static_cast<unsigned char>(bits >= 8 ? 0xFF : 0xFF << (8 - bits));
    if ((bytes[i] & mask) != (network[i] & mask)) return false;
  }
  return true;
}

bool is_public_v4(const ip::address_v4& address) {
  return std::none_of(kSpecialV4.begin(), kSpecialV4.end(), [&](const Block& block) {
    return within(address.to_bytes(), ip::make_address_v4(block.network).to_bytes(), block.bits);
  });
}

bool is_public_v6(const ip::address_v6& address) {
  if (address.is_v4_mapped()) return is_public_v4(ip::make_address_v4(ip::v4_mapped, address));
  if (!within(address.to_bytes(), ip::make_address_v6("2000::").to_bytes(), 3)) return false;
  return std::none_of(kSpecialV6.begin(), kSpecialV6.end(), [&](const Block& block) {
    return within(address.to_bytes(), ip::make_address_v6(block.network).to_bytes(), block.bits);
  });
}

bool is_redirect(int status) { return status == 301 || status == 302 || status == 303 || status == 307 || status == 308; }

}  // namespace

bool is_public_address(const std::string& address) {
  boost::system::error_code ec;
  const ip::address parsed = ip::make_address(address, ec);
  if (ec) return false;
  return parsed.is_v4() ? is_public_v4(parsed.to_v4()) : is_public_v6(parsed.to_v6());
}

Result<std::vector<std::string>> resolve_host(const std::string& host) {
  boost::asio::io_context io;
  boost::system::error_code ec;
  const auto found = ip::tcp::resolver(io).resolve(host, "443", ec);
  if (ec) return Error{ErrorCode::kUnavailable, fmt::format("{}: no such host ({})", host, ec.message())};
  std::vector<std::string> addresses;
  for (const auto& entry : found) addresses.push_back(entry.endpoint().address().to_string());
  return addresses;
}

LinkFetcher::LinkFetcher(LinkFetcherOptions options) : options_(std::move(options)) {
  if (!options_.resolve) options_.resolve = resolve_host;
  if (!options_.is_allowed) options_.is_allowed = is_public_address;
}

// One forbidden address is enough to refuse: a name that mixes them is no name of a public server.
Result<std::vector<std::string>> LinkFetcher::checked_addresses(const std::string& host) const {
  DI_TRY(std::vector<std::string> addresses, options_.resolve(host));
  for (const std::string& address : addresses) {
    if (!options_.is_allowed(address)) {
      return Error{ErrorCode::kPermission, fmt::format("{} is {}, which is no public address: not fetched", host, address)};
    }
  }
  return addresses;
}

Result<std::string> LinkFetcher::fetch(const std::string& url, size_t max_bytes, const std::atomic<bool>* cancelled) const {
  const SteadyClock clock;
  const int64_t end_us = clock.now_us() + options_.timeout_us;
  HttpCall call;
  call.url = url;
  call.cancelled = cancelled;
  call.headers = {
      {"accept", "image/webp, image/png, image/jpeg, image/gif"}, {"user-agent", "deepinfer"}, {"connection", "close"}};
  for (int hop = 0; hop <= options_.max_redirects; ++hop) {
    DI_TRY(const Url place, parse_url(call.url));
    if (!place.is_tls) return unsupported(fmt::format("{}: only https links are fetched", place.origin()));
    HttpClientOptions client;
    client.ca_file = options_.ca_file;
    client.max_body_bytes = max_bytes;
    client.total_timeout_us = end_us - clock.now_us();
    if (client.total_timeout_us <= 0) return Error{ErrorCode::kDeadline, fmt::format("{}: no answer in time", place.origin())};
    client.connect_timeout_us = client.idle_timeout_us = client.total_timeout_us;
    client.resolve = [this](const std::string& host) { return checked_addresses(host); };
    DI_TRY(HttpReply reply, HttpClient(std::move(client)).send(call));
    if (reply.status == 200) return std::move(reply.body);
    const std::string_view target = reply.headers.get("location");
    if (!is_redirect(reply.status) || target.empty()) {
      return Error{ErrorCode::kUnavailable, fmt::format("{}: status {}", place.origin(), reply.status)};
    }
    call.url = resolve_url(place, target);
  }
  return Error{ErrorCode::kUnavailable, fmt::format("{}: more than {} redirects", url.substr(0, 200), options_.max_redirects)};
}

}  // namespace deepinfer
