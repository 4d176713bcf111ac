// sim - clusters in virtual time, deciding with the product's own code.
//
// Purpose: try a routing policy or a cluster's size on an hour of recorded traffic in a second: the policies are those of
// `policy`, the index is the router's own `kvcache/fleet_index.h`; only the workers are models of workers. Promise: no clock, no
// threads, no randomness; the same trace and options give the same figures on every machine. Threads: one per simulation.
// Example: sim/prefill_fleet.h.
#pragma once

#include "sim/prefill_fleet.h"
#include "sim/trace.h"
