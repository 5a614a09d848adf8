// Lists of ranks, for people and on the wire.
#include "comm/rank_list.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "comm/messages.h"
#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

namespace {

using Ranks = std::vector<int>;

Ranks every(int first, int count, int step) {
  Ranks ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

}  // namespace

TEST_CASE("rank list: ranges as people say them") {
  CHECK(ranks_text(Ranks{3}) == "rank 3");
  CHECK(ranks_text(Ranks{1, 2}) == "ranks 1, 2");
  CHECK(ranks_text(Ranks{1, 2, 5}) == "ranks 1, 2, 5");
  CHECK(ranks_text(Ranks{1, 2, 3}) == "ranks 1, 2, 3");
  CHECK(ranks_text(Ranks{1, 2, 3, 4}) == "ranks 1 to 4");
  CHECK(ranks_text(Ranks{9, 7, 5, 3}) == "ranks 9, 7, 5, 3");
  CHECK(ranks_text(Ranks{1, 2, 3, 4, 9}) == "ranks 1 to 4, 9");
  CHECK(ranks_text(every(0, 1024, 4)) == "ranks 0, 4, ... 4092");
  Ranks random(40);
  for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<int>(i * i * i);
  CHECK_THAT(ranks_text(random), ContainsSubstring(", ... (40 ranks)"));
  // It says how many ranks there are, not how many ranges: 20 of five ranks each, of which 16 are shown.
  Ranks fives;
  for (int i = 0; i < 100; ++i) fives.push_back(i / 5 * 10 + i % 5);
  CHECK_THAT(ranks_text(fives),
             ContainsSubstring("ranks 0 to 4, 10 to 14, ") && ContainsSubstring(", 150 to 154, ... (100 ranks)"));
  CHECK(ranks_text(std::span(fives).first(80)).ends_with(", 140 to 144, 150 to 154"));
}

TEST_CASE("rank list: the members of any group travel whole") {
  std::mt19937 shuffle(3);
  Ranks all(8192);
  std::iota(all.begin(), all.end(), 0);
  Ranks scattered;
  for (const int rank : all)
    if (shuffle() % 2 == 0) scattered.push_back(rank);
  Ranks shuffled = all;
  std::ranges::shuffle(shuffled, shuffle);
  for (const Ranks& members : {Ranks{}, Ranks{0}, all, every(0, 1500, 1), every(3, 1024, 8), scattered, shuffled}) {
    MessageStream stream;
    stream.add(to_wire({.type = 6, .texts = {"barrier", encoded_ranks(members), "5"}}));
    const auto message = stream.next();
    REQUIRE(message);
    CHECK(decoded_ranks(message->text(1), 8192) == members);
    CHECK(message->text(2) == "5");
  }
  CHECK(encoded_ranks(every(0, 1500, 1)) == "0-1499/1");
}

TEST_CASE("rank list: what is no list of these ranks is refused") {
  for (const char* text : {"x", "-1", "1,x", "4", "0-4", "0-4/1", "3-1/1", "0-3/0", "0-3/", "0-3/1x", "1 ", "0,1,2,3,0",
                           "0-3/1,0", "99999999999999999999"})
    CHECK_THROWS_AS(decoded_ranks(text, 4), Error);
  for (const char* text : {"x", "4", "0-4/1", "3-1/1", "0-3/0", "0-3/5", "0-3/1/1", "0,,1"})
    CHECK_THROWS_WITH(decoded_ranks(text, 4), "no list of ranks");
  for (const char* text : {"0,1,2,3,0", "0-3/1,0", "0,0-3/1"})
    CHECK_THROWS_WITH(decoded_ranks(text, 4), "a list of more ranks than there are");
  CHECK(decoded_ranks("0-3/4", 4) == Ranks{0});
  CHECK(decoded_ranks("0-3/1", 4) == Ranks{0, 1, 2, 3});
  CHECK(decoded_ranks("1-3/2,0", 4) == Ranks{1, 3, 0});
}
