// turn - volumes from the order of files to channels-last, each turned by one of the 48 symmetries of a cube
//
//   x      [B, C, D, H, W]  fp32
//   y      [B, D, H, W, C]  dtype
//   turns  [B]              i32, the number of each sample's turn; null: 0, which leaves a volume as it is
//
//   A turn has an order of the axes, and a direction for each axis. Axis a of y is axis order[a] of x, and runs
//   backwards where flip[a]: as NumPy's transpose(order) followed by flips.
//
//     y[b, i, c] = sign(c) · x[b, source(c), j]     j[order[a]] = flip[a] ? extent[a] - 1 - i[a] : i[a]
//
//   vector  the first of three channels that are the components of a vector along the axes D, H and W; -1: there are
//           none. Component a of y is component order[a] of x, and has the other sign where flip[a]. Every other
//           channel has source(c) = c and sign(c) = 1.
//
//   numbers       8·p + 4·flip[0] + 2·flip[1] + flip[2]; p is the place of the order among 012 021 102 120 201 210
//   dtypes        y: fp32, bf16, fp16, fp64 (CPU)
//   numerics      copies; one rounding if y is narrower
//   deterministic yes
//   limits        0 <= turn < 48; axes that a turn exchanges have the same extent: an error on a CPU, not looked at on
//                 a GPU. Less than 2^31 elements in a channel
//   aliasing      none
#pragma once

#include <cstdint>

#include "kernels/common/cost.h"
#include "kernels/common/dtype.h"
#include "kernels/common/kernel.h"

namespace isobar {

// Always inline, as kernels/common/math.h tells why.
#define ISOBAR_TURN_FUNCTION ISOBAR_HD inline __attribute__((always_inline)) constexpr

inline constexpr int kTurns = 48;

struct Turn {
  int order[3] = {0, 1, 2};
  bool flip[3] = {};
};

ISOBAR_TURN_FUNCTION Turn turn_of(int number) {
  const int place = number / 8, first = place / 2;
  const int low = first == 0 ? 1 : 0, high = first == 2 ? 1 : 2;  // of the axes that are left
  const bool is_falling = place % 2 != 0;
  return {.order = {first, is_falling ? high : low, is_falling ? low : high},
          .flip = {(number & 4) != 0, (number & 2) != 0, (number & 1) != 0}};
}
ISOBAR_TURN_FUNCTION int number_of(const Turn& turn) {
  const int place = 2 * turn.order[0] + (turn.order[1] > turn.order[2] ? 1 : 0);
  return 8 * place + 4 * turn.flip[0] + 2 * turn.flip[1] + turn.flip[2];
}

// Where the element [i] of y lies in a channel of x: at start + Σ i[a]·step[a].
struct TurnWalk {
  std::int64_t start = 0, step[3] = {};
};
ISOBAR_TURN_FUNCTION TurnWalk walk_of(const Turn& turn, const std::int64_t (&extent)[3]) {
  const std::int64_t stride[3] = {extent[1] * extent[2], extent[2], 1};
  TurnWalk walk;
  for (int a = 0; a < 3; ++a) {
    const std::int64_t along = stride[turn.order[a]];
    walk.step[a] = turn.flip[a] ? -along : along;
    walk.start += turn.flip[a] ? (extent[a] - 1) * along : 0;
  }
  return walk;
}

// The channel of x that channel c of y is made of, and its sign.
struct TurnSource {
  std::int64_t channel = 0;
  float sign = 1;
};
ISOBAR_TURN_FUNCTION TurnSource source_of(const Turn& turn, std::int64_t c, std::int64_t vector) {
  if (vector < 0 || c < vector || c >= vector + 3) return {c, 1.0f};
  const int axis = static_cast<int>(c - vector);
  return {vector + turn.order[axis], turn.flip[axis] ? -1.0f : 1.0f};
}

struct TurnArgs {
  std::int64_t batch = 0, channels = 0, extent[3] = {1, 1, 1};
  std::int64_t vector = -1;
  DType dtype = DType::fp32;
  const float* x = nullptr;
  const std::int32_t* turns = nullptr;
  void* y = nullptr;
};

constexpr Cost turn_cost(const TurnArgs& a) {
  const double n = static_cast<double>(a.batch) * a.channels * a.extent[0] * a.extent[1] * a.extent[2];
  return {.bytes = n * (sizeof(float) + size_of(a.dtype)), .flops = 0};
}

// Throws an Error, "turn: ...", for arguments that the contract does not promise. `turns`: in the memory of the CPU, or
// null.
void check_turn(const TurnArgs& arguments, const std::int32_t* turns);

ISOBAR_KERNEL(turn, TurnArgs)

#undef ISOBAR_TURN_FUNCTION

}  // namespace isobar
