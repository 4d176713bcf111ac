#include "policy/fairness.h"

#include <algorithm>
#include <limits>

namespace deepinfer {
namespace {

constexpr size_t kRemembered = 4096;

}  // namespace

void TokenAccounts::raise_floor() {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (const Account& account : accounts_) {
    if (account.inside > 0) smallest = std::min(smallest, account.tokens);
  }
  if (smallest != std::numeric_limits<int64_t>::max()) floor_ = std::max(floor_, smallest);
}

int32_t TokenAccounts::enter(std::string_view tenant) {
  const auto found = numbers_.find(std::string(tenant));
  if (found != numbers_.end()) {
    ++accounts_[static_cast<size_t>(found->second)].inside;
    return found->second;
  }
  raise_floor();
  int64_t tokens = floor_;
  if (const auto debt = left_.find(std::string(tenant)); debt != left_.end()) {
    tokens = std::max(tokens, debt->second);
    left_.erase(debt);
  }
  int32_t number = static_cast<int32_t>(accounts_.size());
  if (free_.empty()) {
    accounts_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  accounts_[static_cast<size_t>(number)] = {std::string(tenant), tokens, 1};
  numbers_.emplace(tenant, number);
  return number;
}

void TokenAccounts::leave(int32_t tenant) {
  Account& account = accounts_[static_cast<size_t>(tenant)];
  if (--account.inside > 0) return;
  if (numbers_.size() == 1) floor_ = std::max(floor_, account.tokens);
  if (left_.size() >= kRemembered) left_.clear();
  left_[account.name] = account.tokens;
  numbers_.erase(account.name);
  free_.push_back(tenant);
}

}  // namespace deepinfer
