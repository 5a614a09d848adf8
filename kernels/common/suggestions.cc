#include "kernels/common/suggestions.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace isobar {

namespace {

// Insertions, deletions, substitutions and swaps of adjacent letters ("optimal string alignment").
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row.back();
}

std::string letters_of(std::string name) {
  std::erase_if(name, [](char c) { return c == '_' || c == '-'; });
  return name;
}

bool is_near(const std::string& name, const std::string& candidate) {
  return 3 * edit_distance(name, candidate) <= std::max(name.size(), candidate.size());
}

}  // namespace

std::string nearest_name(const std::string& name, const std::vector<std::string>& names) {
  return *std::min_element(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(name, a) < edit_distance(name, b);
  });
}

std::vector<std::string> nearest_names(const std::string& name, std::vector<std::string> names, std::size_t count) {
  std::ranges::stable_sort(names, {}, [&](const std::string& other) { return edit_distance(name, other); });
  if (names.size() > count) names.resize(count);
  return names;
}

std::string suggestion(const std::string& name, const std::vector<std::string>& names,
                       const std::map<std::string, std::string>& other_names) {
  constexpr std::size_t kMinPart = 4;  // letters; a shorter name is a substring of too many names
  const std::string letters = letters_of(name);
  if (const auto other = other_names.find(letters); other != other_names.end()) return other->second;
  if (names.empty()) return "";
  if (const std::string nearest = nearest_name(name, names); is_near(name, nearest)) return nearest;
  const auto whole = std::find_if(names.begin(), names.end(), [&](const std::string& candidate) {
    return letters_of(candidate).find(letters) != std::string::npos;
  });
  return letters.size() >= kMinPart && whole != names.end() ? *whole : "";
}

std::string did_you_mean(const std::string& suggested) {
  return suggested.empty() ? "" : "; did you mean " + suggested + "?";
}

}  // namespace isobar
