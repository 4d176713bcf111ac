#include "apps/cluster_settings.h"

#include "base/file.h"

namespace deepinfer {
namespace {

// The first line of a file, without blanks around it.
Result<std::string> read_secret(const std::string& path) {
  DI_TRY(std::string text, read_file(path));
  text = text.substr(0, text.find('\n'));
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return invalid_argument(path + ": the first line holds no secret");
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

}  // namespace

void ClusterSettings::visit(FieldVisitor visit) {
  visit({.name = "cluster-secret",
         .target = &secret,
         .help = "file with the secret that routers and workers share; this or certificates beyond this machine",
         .value = "FILE"});
  visit({.name = "cluster-cert", .target = &certificate, .help = "certificate for links in the cluster (TLS)", .value = "FILE"});
  visit({.name = "cluster-key", .target = &key, .help = "its private key", .value = "FILE"});
  visit({.name = "cluster-ca",
         .target = &ca,
         .help = "authority of this cluster's certificates, and of no others; of https endpoints of etcd, too",
         .value = "FILE"});
  visit({.name = "transport",
         .target = &transport,
         .help =
             "how pages and pictures go in the cluster: by UCX (shared memory, RDMA) where both sides can and there is no TLS, "
             "which UCX has not; or wherever both can",
         .choices = {"auto", "tcp", "ucx"}});
  visit({.name = "etcd", .target = &etcd, .help = "endpoints of etcd, where workers enter themselves", .value = "URL,..."});
  visit({.name = "cluster", .target = &cluster, .help = "name of the cluster in etcd", .value = "NAME"});
}

Result<LinkSecurity> ClusterSettings::security() const {
  LinkSecurity out{.certificate = certificate, .key = key, .ca = ca};
  if (certificate.empty() != key.empty() || (out.is_tls() && ca.empty()))
    return invalid_argument("--cluster-cert, --cluster-key and --cluster-ca go together");
  if (!secret.empty()) {
    DI_TRY(out.secret, read_secret(secret));
  }
  return out;
}

FrameLanes ClusterSettings::lane() const {
  return transport == "tcp" ? FrameLanes::kNone : transport == "ucx" ? FrameLanes::kAlways : FrameLanes::kAuto;
}

Result<MembershipOptions> ClusterSettings::membership() const {
  MembershipOptions out{.etcd = {.ca_file = ca}, .cluster = cluster};
  DI_TRY(out.etcd.endpoints, parse_etcd_endpoints(etcd));
  if (!is_cluster_name(cluster)) return invalid_argument("--cluster '" + cluster + "': letters, digits, '-', '_' and '.'");
  return out;
}

}  // namespace deepinfer
