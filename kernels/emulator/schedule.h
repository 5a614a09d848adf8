// How the emulator interleaves the threads of a block. A right kernel gives the same result under every schedule; a
// missing barrier shows up in some. Plain C++: tests choose a schedule without seeing the device API.
#pragma once

#include <cstdint>
#include <string>

namespace isobar::emulator {

struct Schedule {
  enum class Order : std::uint8_t { forward, reverse, shuffled };  // of blocks, of warps and of the lanes of a warp

  Order order = Order::forward;
  std::uint32_t seed = 0;  // of the shuffle
  // false: a warp runs until all its threads wait or are done, then the next warp (finds missing barriers).
  // true: every thread of the block runs to its next barrier or warp collective in turn.
  bool lockstep = false;
};

// What a kernel test should run through.
inline constexpr Schedule kTestSchedules[] = {{.order = Schedule::Order::forward},
                                              {.order = Schedule::Order::reverse},
                                              {.order = Schedule::Order::shuffled, .seed = 7},
                                              {.order = Schedule::Order::shuffled, .seed = 11, .lockstep = true}};

// For all launches from now on. The first one is taken from ISOBAR_EMULATOR_ORDER, or is forward.
void set_schedule(const Schedule& schedule);
Schedule current_schedule();

// "forward", "reverse" or a number (the seed of a shuffle), then perhaps ",lockstep". Throws Error on anything else.
Schedule parse_schedule(const std::string& text);
std::string name_of(const Schedule& schedule);

}  // namespace isobar::emulator
