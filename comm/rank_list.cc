#include "comm/rank_list.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "kernels/common/check.h"

namespace isobar {
namespace {

struct Range {
  int first = 0, last = 0, step = 1;
  int count() const { return (last - first) / step + 1; }
};

// A range has at least `least` ranks; all other ranks are ranges of one.
std::vector<Range> ranges_of(std::span<const int> ranks, std::size_t min_length) {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t n = 1;
    const int step = i + 1 < ranks.size() ? ranks[i + 1] - ranks[i] : 0;
    while (step > 0 && i + n < ranks.size() && ranks[i + n] - ranks[i + n - 1] == step) ++n;
    if (n < min_length) n = 1;
    ranges.push_back({ranks[i], ranks[i + n - 1], n > 1 ? step : 1});
    i += n;
  }
  return ranges;
}

std::string text_of(const Range& range) {
  if (range.count() == 1) return std::to_string(range.first);
  if (range.step == 1) return concat(range.first, " to ", range.last);
  return concat(range.first, ", ", range.first + range.step, ", ... ", range.last);
}

int number_in(std::string_view& text, char end, int below) {
  int number = -1;
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const auto length = static_cast<std::size_t>(at - text.data());
  ISOBAR_CHECK(error == std::errc() && number >= 0 && number <= below, "no list of ranks");
  ISOBAR_CHECK(length == text.size() || text[length] == end, "no list of ranks");
  text.remove_prefix(std::min(text.size(), length + 1));
  return number;
}

}  // namespace

std::string ranks_text(std::span<const int> ranks) {
  constexpr std::size_t kMaxRanges = 16, kMinLength = 4;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::vector<Range> ranges = ranges_of(ranks, kMinLength);
  for (std::size_t i = 0; i < std::min(ranges.size(), kMaxRanges); ++i)
    text += (i > 0 ? ", " : "") + text_of(ranges[i]);
  return ranges.size() > kMaxRanges ? concat(text, ", ... (", ranks.size(), " ranks)") : text;
}

std::string encoded_ranks(std::span<const int> ranks) {
  std::string text;
  for (const Range& range : ranges_of(ranks, 3)) {
    text += concat(text.empty() ? "" : ",", range.first);
    if (range.count() > 1) text += concat('-', range.last, '/', range.step);
  }
  return text;
}

std::vector<int> decoded_ranks(const std::string& text, int below) {
  std::vector<int> ranks;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const bool is_range = item.find('-') != std::string_view::npos;
    Range range;
    range.first = range.last = number_in(item, '-', below - 1);
    if (is_range) {
      range.last = number_in(item, '/', below - 1);
      range.step = number_in(item, '\0', below);
    }
    ISOBAR_CHECK(item.empty() && range.step > 0 && range.first <= range.last, "no list of ranks");
    ISOBAR_CHECK(ranks.size() + static_cast<std::size_t>(range.count()) <= static_cast<std::size_t>(below),
                 "a list of more ranks than there are");
    for (int rank = range.first; rank <= range.last; rank += range.step) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace isobar
