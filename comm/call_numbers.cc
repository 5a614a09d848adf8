#include "comm/call_numbers.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar {
namespace {

enum Place : std::size_t { kVerb, kType, kReduce, kRoot, kTo, kFrom, kSends, kReceives, kCounts };

constexpr std::int64_t kMaxElements = std::int64_t{1} << 48;  // so that sums cannot overflow

std::size_t length_for(int ranks) {
  return kCounts + 2 * static_cast<std::size_t>(ranks);
}

// Whether a verb has one count a rank on this side, or a single count (comm/call.h).
bool sends_a_part_each(Verb verb) {
  return verb == Verb::reduce_scatter || verb == Verb::all_to_all;
}
bool receives_a_part_each(Verb verb) {
  return verb == Verb::all_gather || verb == Verb::all_to_all;
}
std::int64_t counts_of(Verb verb, bool part_each, int ranks) {
  return verb == Verb::barrier ? 0 : part_each ? ranks : 1;
}

}  // namespace

std::vector<std::int64_t> numbers_of(const Call& call, int ranks) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  std::vector<std::int64_t> numbers{number(call.verb),
                                    call.dtype ? number(*call.dtype) : -1,
                                    number(call.reduce),
                                    call.root,
                                    call.to,
                                    call.from,
                                    number(call.sends.size()),
                                    number(call.receives.size())};
  numbers.resize(length_for(ranks));
  std::ranges::copy(call.sends, numbers.begin() + kCounts);
  std::ranges::copy(call.receives, numbers.begin() + kCounts + ranks);
  return numbers;
}

Call call_in(std::span<const std::int64_t> numbers, int ranks, int rank) {
  const auto check = [&](bool is_well) {
    ISOBAR_CHECK(is_well, "ISOBAR_COMM_CHECK: what rank ", rank, " has sent is no call: set it on all ranks");
  };
  const auto check_within = [&](std::size_t i, std::int64_t least, std::int64_t most) {
    check(numbers[i] >= least && numbers[i] <= most);
  };
  check(numbers.size() == length_for(ranks));
  check_within(kVerb, 0, static_cast<std::int64_t>(Verb::barrier));
  check_within(kType, -1, static_cast<std::int64_t>(DType::fp64));
  check_within(kReduce, 0, static_cast<std::int64_t>(Reduce::max));
  check_within(kRoot, 0, ranks - 1);
  for (const std::size_t peer : {kTo, kFrom}) check_within(peer, Call::kNoRank, ranks - 1);
  Call call;
  call.verb = static_cast<Verb>(numbers[kVerb]);
  check(numbers[kSends] == counts_of(call.verb, sends_a_part_each(call.verb), ranks));
  check(numbers[kReceives] == counts_of(call.verb, receives_a_part_each(call.verb), ranks));
  for (std::size_t i = kCounts; i < numbers.size(); ++i) check_within(i, 0, kMaxElements);
  call.reduce = static_cast<Reduce>(numbers[kReduce]);
  call.root = static_cast<int>(numbers[kRoot]);
  call.to = static_cast<int>(numbers[kTo]);
  call.from = static_cast<int>(numbers[kFrom]);
  if (numbers[kType] >= 0) call.dtype = static_cast<DType>(numbers[kType]);
  call.sends = numbers.subspan(kCounts, static_cast<std::size_t>(numbers[kSends]));
  call.receives =
      numbers.subspan(kCounts + static_cast<std::size_t>(ranks), static_cast<std::size_t>(numbers[kReceives]));
  return call;
}

}  // namespace isobar
