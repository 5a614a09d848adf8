// Whether the calls of a group's ranks fit together: who is named, by its number in the world, and with which numbers.
#include "comm/fit.h"

#include <string>
#include <vector>

#include "tests/harness/testing.h"

using namespace isobar;

namespace {

using CountsOf = std::vector<std::int64_t>;

const CountsOf kFour{4}, kFive{5}, kParts{1, 2, 3}, kOtherParts{2, 1, 3};

// Of ranks 3, 5 and 9 of the world.
std::string wrong_with(const Call& first, const Call& second, const Call& third) {
  return find_mismatch({&first, &second, &third}, {3, 5, 9}, "call 2 of group tp");
}

Call broadcast_of(const CountsOf& counts, DType dtype = DType::fp32, int root = 0) {
  return {.verb = Verb::broadcast, .dtype = dtype, .sends = counts, .receives = counts, .root = root};
}

}  // namespace

TEST_CASE("fit: the first rank whose call is another one is named, with both calls") {
  const Call right = broadcast_of(kFour);
  const std::string begin = "call 2 of group tp: rank 3 comes to ";
  CHECK(wrong_with(right, right, right) == "");
  CHECK(wrong_with(right, right, {}) == begin + "broadcast of 4 fp32, rank 9 to barrier");
  CHECK(wrong_with(right, {}, broadcast_of(kFive)) == begin + "broadcast of 4 fp32, rank 5 to barrier");
  CHECK(wrong_with(right, right, broadcast_of(kFive)) == begin + "broadcast of 4 fp32, rank 9 to broadcast of 5 fp32");
  CHECK(wrong_with(right, broadcast_of(kFour, DType::i32), right) ==
        begin + "broadcast of 4 fp32, rank 5 to broadcast of 4 i32");
  CHECK(wrong_with(right, right, broadcast_of(kFour, DType::fp32, 2)) ==
        begin + "broadcast of 4 fp32, rank 9 to broadcast of 4 fp32");  // another root
  Call sum{.verb = Verb::all_reduce, .dtype = DType::fp64, .sends = kFour, .receives = kFour}, most = sum;
  most.reduce = Reduce::max;
  CHECK(wrong_with(sum, sum, most) == begin + "all_reduce of 4 fp64, rank 9 to all_reduce (max) of 4 fp64");
  CHECK(wrong_with(most, most, most) == "");
}

TEST_CASE("fit: all ranks have the same parts, and each hands in its own") {
  const CountsOf own[] = {{1}, {2}, {3}};
  const auto gather = [&](std::size_t rank, const CountsOf& parts) {
    return Call{.verb = Verb::all_gather, .sends = own[rank], .receives = parts};
  };
  const auto scatter = [&](std::size_t rank, const CountsOf& parts) {
    return Call{.verb = Verb::reduce_scatter, .dtype = DType::fp32, .sends = parts, .receives = own[rank]};
  };
  CHECK(wrong_with(gather(0, kParts), gather(1, kParts), gather(2, kParts)) == "");
  CHECK(wrong_with(gather(0, kParts), gather(1, kParts), gather(2, kOtherParts)) ==
        "call 2 of group tp: rank 3 comes to all_gather of 6 bytes, rank 9 to all_gather of 6 bytes");
  CHECK(wrong_with(gather(0, kParts), gather(1, kParts), gather(0, kParts)) ==
        "call 2 of group tp: rank 9 hands in 1 elements, the others expect 3");
  CHECK(wrong_with(gather(1, kParts), gather(1, kParts), gather(2, kParts)) ==
        "call 2 of group tp: rank 3 hands in 2 elements, the others expect 1");
  CHECK(wrong_with(scatter(0, kParts), scatter(1, kParts), scatter(2, kParts)) == "");
  CHECK(wrong_with(scatter(0, kParts), scatter(1, kOtherParts), scatter(2, kParts)) ==
        "call 2 of group tp: rank 3 comes to reduce_scatter of 6 fp32, rank 5 to reduce_scatter of 6 fp32");
}

TEST_CASE("fit: what one rank sends to another is what that one expects, pair by pair") {
  // Rank a sends 10·a + b elements to rank b.
  const auto column = [](std::int64_t b) { return CountsOf{b, 10 + b, 20 + b}; };
  const CountsOf rows[] = {{0, 1, 2}, {10, 11, 12}, {20, 21, 22}}, columns[] = {column(0), column(1), column(2)};
  const auto exchange = [](const CountsOf& to, const CountsOf& from, DType dtype = DType::fp32) {
    return Call{.verb = Verb::all_to_all, .dtype = dtype, .sends = to, .receives = from};
  };
  const Call first = exchange(rows[0], columns[0]), second = exchange(rows[1], columns[1]);
  CHECK(wrong_with(first, second, exchange(rows[2], columns[2])) == "");
  const CountsOf fewer{20, 20, 22};
  CHECK(wrong_with(first, second, exchange(fewer, columns[2])) ==
        "call 2 of group tp: rank 9 sends 20 elements to rank 5, which expects 21");
  const CountsOf more{2, 13, 22};
  CHECK(wrong_with(first, second, exchange(rows[2], more)) ==
        "call 2 of group tp: rank 5 sends 12 elements to rank 9, which expects 13");

  const CountsOf none{0};
  const auto message = [](const CountsOf& sends, int to, const CountsOf& receives, int from,
                          DType dtype = DType::fp32) {
    return Call{
        .verb = Verb::send_receive, .dtype = dtype, .sends = sends, .receives = receives, .to = to, .from = from};
  };
  constexpr int kNobody = Call::kNoRank;
  const Call idle = message(none, kNobody, none, kNobody, DType::i32);  // its dtype means nothing
  CHECK(wrong_with(message(kFour, 2, kFive, 2), idle, message(kFive, 0, kFour, 0)) == "");
  CHECK(wrong_with(message(kFour, 2, kFive, 2), idle, message(kFive, 0, kFive, 0)) ==
        "call 2 of group tp: rank 3 sends 4 elements to rank 9, which expects 5");
  CHECK(wrong_with(message(kFour, 2, none, kNobody), idle, message(none, kNobody, kFour, 0, DType::i32)) ==
        "call 2 of group tp: rank 3 sends 4 elements to rank 9, which expects 4 of another dtype");
  CHECK(wrong_with(message(kFour, 1, none, kNobody), idle, idle) ==
        "call 2 of group tp: rank 3 sends 4 elements to rank 5, which expects 0");
  CHECK(wrong_with(idle, message(none, kNobody, kFour, 2), idle) ==
        "call 2 of group tp: rank 9 sends 0 elements to rank 5, which expects 4");
}
