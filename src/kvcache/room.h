// kvcache - where the state of sequences lives.
//
// Purpose: pages with leases, state blocks per slot, the page table, sequences as bytes, the index of cached prefixes and
// their snapshots; in tiers/ the store of pages on a disk.
// Promise: free + leased + cached = all; a sequence's bytes carry everything it needs to go on elsewhere.
// Threads: the thread that drives the device; the store any.
// Example: kvcache/sequence_cache.h.
#pragma once

#include "kvcache/page_key.h"
#include "kvcache/page_pool.h"
#include "kvcache/page_transfer.h"
#include "kvcache/prefix_index.h"
#include "kvcache/sequence_cache.h"
#include "kvcache/sequence_store.h"
#include "kvcache/snapshot_shelf.h"
#include "kvcache/tiers/segment_store.h"
