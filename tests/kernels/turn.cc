// turn: every turn of a labelled box, made step by step as NumPy does, for every dtype, and what is refused.
#include "kernels/cases/turn.h"

#include <set>
#include <stdexcept>

#include "tests/harness/kernel_testing.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

const std::vector<DeviceKind> kDevices = all_devices();

struct Box {
  std::int64_t extent[3];
  std::vector<double> values;

  double at(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return values[static_cast<std::size_t>((i * extent[1] + j) * extent[2] + k)];
  }
};

// Axis a of the result is axis order[a] of the box.
Box transposed(const Box& box, const int (&order)[3]) {
  Box result{{box.extent[order[0]], box.extent[order[1]], box.extent[order[2]]}, {}};
  std::int64_t at[3];
  for (std::int64_t i = 0; i < result.extent[0]; ++i)
    for (std::int64_t j = 0; j < result.extent[1]; ++j)
      for (std::int64_t k = 0; k < result.extent[2]; ++k) {
        at[order[0]] = i;
        at[order[1]] = j;
        at[order[2]] = k;
        result.values.push_back(box.at(at[0], at[1], at[2]));
      }
  return result;
}

Box flipped(const Box& box, int axis) {
  Box result{{box.extent[0], box.extent[1], box.extent[2]}, {}};
  for (std::int64_t i = 0; i < box.extent[0]; ++i)
    for (std::int64_t j = 0; j < box.extent[1]; ++j)
      for (std::int64_t k = 0; k < box.extent[2]; ++k)
        result.values.push_back(box.at(axis == 0 ? box.extent[0] - 1 - i : i, axis == 1 ? box.extent[1] - 1 - j : j,
                                       axis == 2 ? box.extent[2] - 1 - k : k));
  return result;
}

constexpr int kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

struct Case {
  std::int64_t batch, channels, extent[3], vector;
  DType dtype;
  std::vector<int> turns;  // of the samples

  std::int64_t points() const { return extent[0] * extent[1] * extent[2]; }
  std::int64_t size() const { return batch * channels * points(); }
};

// Numbers that are exact in 16 bits, different ones as far as there are so many.
Values labels(const Case& c) {
  Values x = constant_values(c.size(), DType::fp32, 0);
  for (std::int64_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 257) - 128;
  return x;
}

Values turned(const Case& c, const Values& x) {
  Values y = constant_values(c.size(), c.dtype, 0);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    const int number = c.turns.empty() ? 0 : c.turns[static_cast<std::size_t>(b)];
    const int(&order)[3] = kOrders[number / 8];
    const bool flip[3] = {number / 4 % 2 == 1, number / 2 % 2 == 1, number % 2 == 1};
    for (std::int64_t channel = 0; channel < c.channels; ++channel) {
      const bool is_vector = c.vector >= 0 && channel >= c.vector && channel < c.vector + 3;
      const auto axis = static_cast<int>(channel - c.vector);
      const std::int64_t source = is_vector ? c.vector + order[axis] : channel;
      const auto begin = x.v.begin() + (b * c.channels + source) * c.points();
      Box box{{c.extent[0], c.extent[1], c.extent[2]}, {begin, begin + c.points()}};
      box = transposed(box, order);
      for (int a = 0; a < 3; ++a)
        if (flip[a]) box = flipped(box, a);
      for (std::int64_t i = 0; i < c.points(); ++i)
        y[(b * c.points() + i) * c.channels + channel] =
            box.values[static_cast<std::size_t>(i)] * (is_vector && flip[axis] ? -1 : 1);
    }
  }
  return y;
}

Values as_values(const std::vector<int>& turns) {
  return values_of({turns.begin(), turns.end()}, DType::i32);
}

std::vector<int> all_turns() {
  std::vector<int> turns;
  for (int i = 0; i < kTurns; ++i) turns.push_back(i);
  return turns;
}

TurnArgs arguments(const Case& c, const Values& x, const Values& turns, Workbench& bench) {
  TurnArgs a{.batch = c.batch, .channels = c.channels, .vector = c.vector, .dtype = c.dtype};
  for (int axis = 0; axis < 3; ++axis) a.extent[axis] = c.extent[axis];
  return cases::turn(a, bench.operands({{"x", x}, {"turns", c.turns.empty() ? nullptr : &turns}}));
}

}  // namespace

TEST_CASE("turn makes every turn of a box, of vectors too") {
  std::vector<Case> cases;
  for (const DType dtype : kFloating) {
    cases.push_back({48, 4, {3, 3, 3}, 1, dtype, all_turns()});
    cases.push_back({48, 4, {3, 3, 3}, -1, dtype, all_turns()});
    cases.push_back({2, 5, {4, 6, 5}, 1, dtype, {}});
    cases.push_back({4, 5, {4, 6, 35}, 2, dtype, {1, 7, 2, 5}});  // flips alone
    cases.push_back({3, 3, {2, 37, 37}, 0, dtype, {9, 15, 0}});   // the last two axes
    cases.push_back({2, 1, {33, 2, 33}, -1, dtype, {43, 40}});    // the outer ones
    cases.push_back({1, 19, {1, 2, 67}, 16, dtype, {3}});         // more channels than a tile
    cases.push_back({0, 4, {3, 3, 3}, 1, dtype, {}});
  }
  cases.push_back({48, 4, {33, 33, 33}, 1, DType::fp32, all_turns()});
  for (const Case& c : cases) {
    INFO(name_of(c.dtype) << ", " << c.batch << " x " << c.channels << " channels of " << c.extent[0] << " x "
                          << c.extent[1] << " x " << c.extent[2] << ", vector at " << c.vector);
    const Values x = labels(c), y = turned(c, x), turns = as_values(c.turns);
    on_devices(kDevices, {c.dtype}, [&](Workbench& bench) {
      const TurnArgs a = arguments(c, x, turns, bench);
      ISOBAR_RUN(bench.device(), turn, a);
      bench.check_equal("y", {a.y}, y);
    });
  }
}

TEST_CASE("turn: the numbers of the turns are those of the contract") {
  std::set<std::vector<int>> seen;
  for (int number = 0; number < kTurns; ++number) {
    const Turn turn = turn_of(number);
    CHECK(number_of(turn) == number);
    for (int a = 0; a < 3; ++a) CHECK(turn.order[a] == kOrders[number / 8][a]);
    seen.insert({turn.order[0], turn.order[1], turn.order[2], turn.flip[0], turn.flip[1], turn.flip[2]});
  }
  CHECK(seen.size() == kTurns);
}

TEST_CASE("turn refuses axes that cannot be exchanged, and turns that do not exist") {
  const auto refuses = [](const Case& c, const char* sentence) {
    const Values x = labels(c), turns = as_values(c.turns);
    on_devices({DeviceKind::cpu}, {}, [&](Workbench& bench) {
      const TurnArgs a = arguments(c, x, turns, bench);
      CHECK_THROWS_WITH(cpu::turn(a), ContainsSubstring(sentence));
    });
  };
  refuses({1, 1, {2, 3, 3}, -1, DType::fp32, {16}}, "turn: turn 16 exchanges the axes 0 and 1, whose extents are");
  refuses({1, 1, {3, 3, 3}, -1, DType::fp32, {48}}, "turn: there is no turn 48");
  refuses({1, 1, {3, 3, 3}, -1, DType::fp32, {-1}}, "turn: there is no turn -1");
  refuses({1, 3, {3, 3, 3}, 1, DType::fp32, {}}, "turn: channels 1 to 3 are no vector of 3 channels");
}

}  // namespace isobar::testing
