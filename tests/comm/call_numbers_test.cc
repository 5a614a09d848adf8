// Calls as numbers (ISOBAR_COMM_CHECK): what comes back is the call, and what is none is refused before it is used.
#include "comm/call_numbers.h"

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "comm/fit.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

namespace {

constexpr int kRanks = 3;
const std::vector<std::int64_t> kOne{7}, kEach{4, 0, 9};

std::vector<Call> all_calls() {
  return {{.verb = Verb::all_reduce, .dtype = DType::fp64, .reduce = Reduce::max, .sends = kOne, .receives = kOne},
          {.verb = Verb::all_gather, .sends = kOne, .receives = kEach},
          {.verb = Verb::reduce_scatter, .dtype = DType::bf16, .sends = kEach, .receives = kOne},
          {.verb = Verb::broadcast, .dtype = DType::i32, .sends = kOne, .receives = kOne, .root = 2},
          {.verb = Verb::all_to_all, .dtype = DType::fp32, .sends = kEach, .receives = kEach},
          {.verb = Verb::send_receive, .dtype = DType::fp32, .sends = kOne, .receives = kOne, .to = 1},
          {.verb = Verb::send_receive, .dtype = DType::fp16, .sends = kOne, .receives = kOne, .to = 0, .from = 2},
          {}};
}

// Of three ranks that come to the same call, where the second one has sent these numbers.
void compare(const Call& right, const std::vector<std::int64_t>& numbers) {
  const Call theirs = call_in(numbers, kRanks, 1);
  find_mismatch({&right, &theirs, &right}, {0, 1, 2}, "call 1 of group world");
}

}  // namespace

TEST_CASE("call numbers: every verb's call comes back") {
  for (const Call& call : all_calls()) {
    const std::vector<std::int64_t> numbers = numbers_of(call, kRanks);
    const Call back = call_in(numbers, kRanks, 1);
    CHECK(to_text(back) == to_text(call));
    CHECK(back.root == call.root);
    CHECK(back.to == call.to);
    CHECK(back.from == call.from);
    CHECK(std::ranges::equal(back.sends, call.sends));
    CHECK(std::ranges::equal(back.receives, call.receives));
  }
}

TEST_CASE("call numbers: a verb, a type, a rank or a count that is none is a sentence") {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  for (const Call& call : all_calls()) {
    const std::vector<std::int64_t> right = numbers_of(call, kRanks);
    const auto refused = [&](std::size_t place, std::int64_t number) {
      std::vector<std::int64_t> numbers = right;
      numbers[place] = number;
      CHECK_THROWS_WITH(compare(call, numbers),
                        "ISOBAR_COMM_CHECK: what rank 1 has sent is no call: set it on all ranks");
    };
    for (std::size_t place = 0; place < right.size(); ++place)
      for (const std::int64_t number : {kLeast, std::int64_t{-2}, kMost}) refused(place, number);
    for (const std::size_t place : {0, 2, 3, 6, 7, 8}) refused(place, -1);  // but of the type and of ranks: none
    refused(0, 7);                                                          // verbs
    refused(1, 5);                                                          // types
    refused(2, 2);                                                          // sums
    refused(3, kRanks);                                                     // the root
    refused(4, kRanks);                                                     // to
    refused(5, kRanks);                                                     // from
    refused(6, kRanks + 1);                                                 // counts
    refused(7, kRanks + 1);
    refused(6, right[6] == 2 ? 1 : 2);
    refused(7, right[7] == 2 ? 1 : 2);
    CHECK_THROWS_AS(call_in(std::span(right).first(right.size() - 1), kRanks, 1), Error);
  }
}

// Elements of a rank that does not compare: any bytes. None is used as an index (AddressSanitizer sees it).
TEST_CASE("call numbers: any numbers at all are a call or a sentence") {
  std::mt19937_64 random(3);
  int calls = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::vector<Call> all = all_calls();
    const Call& call = all[static_cast<std::size_t>(i) % all.size()];
    std::vector<std::int64_t> numbers = numbers_of(call, kRanks);
    for (int changes = static_cast<int>(random() % 4); changes >= 0; --changes) {
      const std::uint64_t any = random();
      const bool is_small = random() % 2 == 0;
      numbers[random() % numbers.size()] =
          is_small ? static_cast<std::int64_t>(any % 8) - 1 : static_cast<std::int64_t>(any);
    }
    try {
      compare(call, numbers);
      ++calls;
    } catch (const Error& error) {
      REQUIRE_THAT(error.what(), ContainsSubstring("rank 1 has sent is no call"));
    }
  }
  CHECK(calls > 100);
  CHECK(calls < 19000);
}
