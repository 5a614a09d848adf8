#include "kernels/turn.h"

#include "kernels/common/check.h"

namespace isobar {

void check_turn(const TurnArgs& a, const std::int32_t* turns) {
  const std::int64_t points = a.extent[0] * a.extent[1] * a.extent[2];
  ISOBAR_CHECK(points < std::int64_t{1} << 31, "turn: a channel of ", a.extent[0], " x ", a.extent[1], " x ",
               a.extent[2], " points is too large");
  ISOBAR_CHECK(a.vector == -1 || (a.vector >= 0 && a.vector + 3 <= a.channels), "turn: channels ", a.vector, " to ",
               a.vector + 2, " are no vector of ", a.channels, " channels");
  for (std::int64_t b = 0; turns != nullptr && b < a.batch; ++b) {
    ISOBAR_CHECK(turns[b] >= 0 && turns[b] < kTurns, "turn: there is no turn ", turns[b]);
    const Turn turn = turn_of(turns[b]);
    for (int axis = 0; axis < 3; ++axis)
      ISOBAR_CHECK(a.extent[turn.order[axis]] == a.extent[axis], "turn: turn ", turns[b], " exchanges the axes ", axis,
                   " and ", turn.order[axis], ", whose extents are ", a.extent[axis], " and ",
                   a.extent[turn.order[axis]]);
  }
}

}  // namespace isobar
