// parallel - the ranks of one model.
//
// Purpose: exchange rows between ranks (expert dispatch and combine) through a Communicator; thread ranks now, MPI and
// NCCL behind the same door. Without a communicator a model is its own only rank and nothing is copied.
// Promise: the number of ranks never changes a byte of the output: only copies cross ranks, sums stay local and ordered.
// Threads: one communicator per rank thread.
// Example: ThreadGroup group(2); auto communicator = group.join(rank);
#pragma once

#include "parallel/communicator.h"
#include "parallel/thread_group.h"
