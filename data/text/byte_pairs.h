// The merging of byte-pair encoding: which two neighbours become one symbol, and in which order.
//
//   Of all neighbours that a rule joins, those with the rule of the lowest rank are joined first; of several places the
//   leftmost. This goes on until no rule fits.
//
// A short text is searched for its lowest rank again and again, O(n²). A long one keeps its places by their ranks,
// O(n log n): text without white space, an encoded picture say, may be one piece of many megabytes.
//
//   source  Sennrich, Haddow, Birch 2016, "Neural Machine Translation of Rare Words with Subword Units"
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace isobar {

class BytePairs {
 public:
  // The symbols left and right become result. The rank of a rule is its place in the list.
  struct Rule {
    std::int32_t left, right, result;
  };

  // No pair may have two rules.
  explicit BytePairs(std::span<const Rule> rules);

  // Joins the symbols from number `first` on, in place; the vector becomes shorter. At most 2^32 - 2 symbols.
  void merge(std::vector<std::int32_t>& symbols, std::size_t first) const;

 private:
  static constexpr std::uint32_t kNoRank = 0xffffffff;
  struct Slot {
    std::uint64_t pair = ~std::uint64_t{0};  // left, right; all ones: empty
    std::uint32_t rank = kNoRank;
  };
  class LongText;

  static std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
    return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t pair) const { return (pair * 0x9e3779b97f4a7c15u) >> shift_; }
  // kNoRank: no rule joins them.
  std::uint32_t rank(std::int32_t left, std::int32_t right) const {
    const std::uint64_t pair = pair_of(left, right);
    std::size_t slot = slot_of(pair);
    while (slots_[slot].rank != kNoRank && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
    return slots_[slot].rank;
  }
  std::size_t merge_short(std::int32_t* symbols, std::size_t n) const;

  std::vector<Slot> slots_;  // a power of two, at most half of them used
  int shift_ = 0;
  std::vector<std::int32_t> results_;  // by rank
};

}  // namespace isobar
