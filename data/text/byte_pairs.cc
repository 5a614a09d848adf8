#include "data/text/byte_pairs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <queue>
#include <unordered_map>

#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr std::size_t kShortText = 64;  // symbols; above, keeping places by their ranks is faster

}  // namespace

BytePairs::BytePairs(std::span<const Rule> rules) {
  const std::size_t slots = std::bit_ceil(2 * rules.size() + 2);
  slots_.resize(slots);
  shift_ = 64 - std::countr_zero(slots);
  for (const Rule& rule : rules) {
    const std::uint64_t pair = pair_of(rule.left, rule.right);
    ISOBAR_CHECK(rank(rule.left, rule.right) == kNoRank, "two rules join symbols ", rule.left, " and ", rule.right);
    std::size_t slot = slot_of(pair);
    while (slots_[slot].rank != kNoRank) slot = (slot + 1) & (slots - 1);
    slots_[slot] = {.pair = pair, .rank = static_cast<std::uint32_t>(results_.size())};
    results_.push_back(rule.result);
  }
}

// Returns how many symbols are left.
std::size_t BytePairs::merge_short(std::int32_t* symbols, std::size_t n) const {
  std::array<std::uint32_t, kShortText> ranks;  // of symbol i and the next one
  for (std::size_t i = 0; i + 1 < n; ++i) ranks[i] = rank(symbols[i], symbols[i + 1]);
  while (n > 1) {
    const std::size_t at =
        static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.begin() + n - 1) - ranks.begin());
    if (ranks[at] == kNoRank) break;
    symbols[at] = results_[ranks[at]];
    std::copy(symbols + at + 2, symbols + n, symbols + at + 1);
    if (at + 2 < n) std::copy(ranks.begin() + at + 2, ranks.begin() + n - 1, ranks.begin() + at + 1);
    --n;
    if (at > 0) ranks[at - 1] = rank(symbols[at - 1], symbols[at]);
    if (at + 1 < n) ranks[at] = rank(symbols[at], symbols[at + 1]);
  }
  return n;
}

// A linked list of symbols; for each rank the places where its rule fitted once.
class BytePairs::LongText {
 public:
  LongText(const BytePairs& pairs, std::int32_t* symbols, std::size_t n)
      : pairs_(pairs), symbols_(symbols), n_(static_cast<std::uint32_t>(n)), next_(n), previous_(n) {
    for (std::uint32_t i = 0; i < n_; ++i) {
      next_[i] = i + 1;
      previous_[i] = i - 1;
    }
    for (std::uint32_t i = 0; i < n_; ++i) note(i);
  }

  // Returns how many symbols are left; they are moved to the front.
  std::size_t merge() {
    while (!ranks_.empty()) {
      const std::uint32_t rank = ranks_.top();
      ranks_.pop();
      join_all(rank);
    }
    std::size_t left = 0;
    for (std::uint32_t i = 0; i < n_; i = next_[i]) symbols_[left++] = symbols_[i];
    return left;
  }

 private:
  std::uint32_t rank_at(std::uint32_t place) const {
    const std::uint32_t right = next_[place];
    return right < n_ ? pairs_.rank(symbols_[place], symbols_[right]) : kNoRank;
  }
  // Keeps a place for the rule that fits there. Returns its rank.
  std::uint32_t note(std::uint32_t place) {
    const std::uint32_t rank = rank_at(place);
    if (rank == kNoRank) return rank;
    std::vector<std::uint32_t>& places = places_[rank];
    if (places.empty()) ranks_.push(rank);
    places.push_back(place);
    return rank;
  }
  // A joined symbol stands at its left place. What its right place held is no symbol any more.
  void join(std::uint32_t place, std::uint32_t rank) {
    const std::uint32_t right = next_[place], after = next_[right];
    symbols_[place] = pairs_.results_[rank];
    symbols_[right] = kGone;
    next_[place] = after;
    if (after < n_) previous_[after] = place;
  }
  // Joins the places of one rank from the left. A join may make place for a lower rank; the rest then waits.
  void join_all(std::uint32_t rank) {
    std::vector<std::uint32_t> places;
    places.swap(places_[rank]);
    if (!std::is_sorted(places.begin(), places.end())) std::sort(places.begin(), places.end());
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::uint32_t place = places[i];
      if (symbols_[place] == kGone || rank_at(place) != rank) continue;
      join(place, rank);
      const std::uint32_t before = place > 0 ? note(previous_[place]) : kNoRank;
      if (std::min(before, note(place)) > rank) continue;
      std::vector<std::uint32_t>& waiting = places_[rank];
      waiting.insert(waiting.end(), places.begin() + static_cast<std::ptrdiff_t>(i) + 1, places.end());
      if (!waiting.empty()) ranks_.push(rank);
      return;
    }
  }

  static constexpr std::int32_t kGone = -1;
  const BytePairs& pairs_;
  std::int32_t* symbols_;
  std::uint32_t n_;
  std::vector<std::uint32_t> next_, previous_;  // n_: the end
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> places_;
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ranks_;
};

void BytePairs::merge(std::vector<std::int32_t>& symbols, std::size_t first) const {
  const std::size_t n = symbols.size() - first;
  ISOBAR_CHECK(n < kNoRank - 1, "a piece of text has ", n, " bytes, more than can be merged");
  std::int32_t* const begin = symbols.data() + first;
  const std::size_t left = n <= kShortText ? merge_short(begin, n) : LongText(*this, begin, n).merge();
  symbols.resize(first + left);
}

}  // namespace isobar
