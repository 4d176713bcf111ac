// apps/cluster_settings.h - what `serve` and `route` are told of the cluster around them, in the same flags.
#pragma once

#include <string>

#include "base/fields.h"
#include "base/result.h"
#include "cluster/membership.h"
#include "net/frame_hub.h"

namespace deepinfer {

struct ClusterSettings {
  std::string secret, certificate, key, ca;
  std::string transport = "auto";
  std::string etcd, cluster = "default";

  void visit(FieldVisitor visit);
  Result<LinkSecurity> security() const;
  FrameLanes lane() const;
  // REQUIRES: etcd is set.
  Result<MembershipOptions> membership() const;
};

}  // namespace deepinfer
