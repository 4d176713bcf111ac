// cluster/member_table.h - the slots of a router and who has them, as lists of members come and go.
//
// A worker that is on no list any more keeps its slot for ten seconds while its link holds: etcd may have lost its data, and the
// worker enters itself again within three. Promise: a slot has one link, or one attempt at it, at a time: connect is told again
// only behind lost(). Threads: plain data; the router guards it.
//
//   const auto turn = table.hear(members, now_us);    // call those of turn.connect, hang up on those of turn.close
//   if (table.lost(slot)) ...                         // its link ended: call it again, else the slot is free
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cluster/membership.h"

namespace deepinfer {

class MemberTable {
 public:
  explicit MemberTable(size_t slots) : slots_(slots) {}

  struct Turn {
    std::vector<int32_t> connect;
    std::vector<int32_t> close;  // it started anew: what runs there is over
  };
  Turn hear(std::span<const Member> members, int64_t now_us);
  // Slots whose time without an entry is over; hang up.
  std::vector<int32_t> due(int64_t now_us) const;
  bool lost(int32_t slot);

  size_t size() const { return slots_.size(); }
  // Null: free.
  const Member* at(int32_t slot) const;
  // Of the last list, for whom there was no slot.
  int64_t left_out() const { return left_out_; }

 private:
  struct Slot {
    std::optional<Member> member;
    int64_t gone_us = -1;  // -1: on the last list
  };
  std::vector<Slot> slots_;
  int64_t left_out_ = 0;
};

}  // namespace deepinfer
