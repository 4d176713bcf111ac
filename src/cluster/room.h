// cluster - many engines as one service: workers that run requests, a router that places them.
//
// Purpose: the messages between router and workers, the port a worker answers on, and a TokenService that sends each request to
// the worker where it ends soonest and carries it on elsewhere, byte for byte, when that one goes. Promise: a request has one
// final event whatever dies; no token comes twice or is lost; a worker that is slow, hung, draining or of another model is not
// chosen, and the reason is told. Threads: as each header says; everything from the net is handled on the hub's thread. Example:
// cluster/router.h.
#pragma once

#include "cluster/router.h"
#include "cluster/wire.h"
#include "cluster/worker_port.h"
