// host/ring_reads.h - DiskReads by io_uring. Null where the system has none or a container refuses it.
//
//   std::unique_ptr<DiskReads> disk = open_ring_reads();
#pragma once

#include <memory>

#include "base/disk_reads.h"

namespace deepinfer {

std::unique_ptr<DiskReads> open_ring_reads();

}  // namespace deepinfer
