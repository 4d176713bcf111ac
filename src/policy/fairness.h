// policy/fairness.h - whose request starts next: token-fair over tenants.
//
// Each tenant has an account of the tokens computed for it. Among requests of one priority the tenant with the smallest
// account goes first, so a tenant with a thousand queued prompts delays another's only prompt by one turn. Who comes back
// after a pause starts at the smallest account of those that are there, or, where nobody is, at that of whoever left last: idling
// earns nothing, and working alone costs nothing (start-time fair queueing, Goyal et al. 1996; virtual token counter, Sheng et
// al. 2024).
// Threads: plain data, one thread.
//
//   const int32_t tenant = accounts.enter("key-7");   // a request of it arrives
//   accounts.charge(tenant, 512);                     // rows computed for it
//   accounts.leave(tenant);                           // the request ended
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace deepinfer {

class TokenAccounts {
 public:
  // The number under which the tenant is known until its last request has left.
  int32_t enter(std::string_view tenant);
  void leave(int32_t tenant);
  void charge(int32_t tenant, int64_t tokens) { accounts_[static_cast<size_t>(tenant)].tokens += tokens; }
  int64_t requests(int32_t tenant) const { return accounts_[static_cast<size_t>(tenant)].inside; }
  int64_t tokens(int32_t tenant) const { return accounts_[static_cast<size_t>(tenant)].tokens; }

 private:
  struct Account {
    std::string name;
    int64_t tokens = 0;
    int32_t inside = 0;
  };
  void raise_floor();

  int64_t floor_ = 0;  // where newcomers start; never falls
  std::vector<Account> accounts_;
  std::vector<int32_t> free_;
  std::unordered_map<std::string, int32_t> numbers_;  // of tenants with requests inside
  // Debts of those that left; forgotten when there are many.
  std::unordered_map<std::string, int64_t> left_;
};

}  // namespace deepinfer
