#include "base/nearest.h"

#include <algorithm>
#include <vector>

namespace deepinfer {

int edit_distance(std::string_view a, std::string_view b) {
  const size_t width = b.size() + 1;
  std::vector<int> rows((a.size() + 1) * width);
  const auto at = [&](size_t i, size_t j) -> int& { return rows[i * width + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      int best = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) best = std::min(best, at(i - 2, j - 2) + 1);
      at(i, j) = best;
    }
  }
  return at(a.size(), b.size());
}

std::string nearest_name(std::string_view word, std::span<const std::string> names) {
  if (word.size() > 100) return "";
  int best = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  std::string found;
  for (const std::string& name : names) {
    const bool prefix = word.size() >= 3 && name.starts_with(word);
    const int distance = prefix ? 1 : edit_distance(word, name);
    if (distance < best) best = distance, found = name;
  }
  return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names, std::string_view prefix) {
  const std::string found = nearest_name(word, names);
  if (found.empty()) return "";
  std::string text = "; did you mean ";
  return text.append(prefix).append(found).append("?");
}

}  // namespace deepinfer
