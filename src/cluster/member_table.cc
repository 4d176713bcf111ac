#include "cluster/member_table.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace deepinfer {
namespace {

constexpr int64_t kGraceUs = 10'000'000;

// An entry of the same address under another role, from before a new start, lives until its lease ends.
bool is_replaced(const Member& member, std::span<const Member> members) {
  // An epoch begins with microseconds since 1970.
  const auto age = [](const Member& m) {
    const std::string_view time = std::string_view(m.epoch).substr(0, m.epoch.find('-'));
    return std::pair(time.size(), time);
  };
  return std::any_of(members.begin(), members.end(),
                     [&](const Member& other) { return other.at == member.at && age(member) < age(other); });
}

}  // namespace

MemberTable::Turn MemberTable::hear(std::span<const Member> members, int64_t now_us) {
  Turn turn;
  for (Slot& slot : slots_) {
    if (slot.member && slot.gone_us < 0) slot.gone_us = now_us;
  }
  left_out_ = 0;
  for (const Member& member : members) {
    if (is_replaced(member, members)) continue;
    auto found =
        std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.member && slot.member->at == member.at; });
    const bool is_new = found == slots_.end();
    if (is_new) found = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.member; });
    if (found == slots_.end()) {
      ++left_out_;
      continue;
    }
    const auto index = static_cast<int32_t>(found - slots_.begin());
    if (is_new) turn.connect.push_back(index);
    if (!is_new && found->member->epoch != member.epoch) turn.close.push_back(index);
    *found = {.member = member};
  }
  return turn;
}

std::vector<int32_t> MemberTable::due(int64_t now_us) const {
  std::vector<int32_t> out;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].gone_us >= 0 && now_us - slots_[i].gone_us > kGraceUs) out.push_back(static_cast<int32_t>(i));
  }
  return out;
}

bool MemberTable::lost(int32_t slot) {
  Slot& lost = slots_[static_cast<size_t>(slot)];
  if (lost.gone_us < 0) return true;
  lost = {};
  return false;
}

const Member* MemberTable::at(int32_t slot) const {
  const auto& member = slots_[static_cast<size_t>(slot)].member;
  return member ? &*member : nullptr;
}

}  // namespace deepinfer
