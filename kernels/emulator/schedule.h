// How the emulator interleaves the threads of a block. A correct kernel gives the same result under every schedule;
// some schedules show a missing barrier. Plain C++: tests choose a schedule without the device API.
#pragma once

#include <cstdint>
#include <string>

namespace isobar::emulator {

struct Schedule {
  // Of blocks, of warps and of the lanes of a warp.
  enum class Order : std::uint8_t { forward, reverse, shuffled };

  Order order = Order::forward;
  std::uint32_t seed = 0;  // of the shuffle
  // false: a warp runs until all its threads wait or are done, then the next warp (finds missing barriers).
  // true: every thread of the block runs to its next barrier or warp collective in turn.
  bool lockstep = false;
};

// The schedules that a kernel test should use.
inline constexpr Schedule kTestSchedules[] = {{.order = Schedule::Order::forward},
                                              {.order = Schedule::Order::reverse},
                                              {.order = Schedule::Order::shuffled, .seed = 7},
                                              {.order = Schedule::Order::shuffled, .seed = 11, .lockstep = true}};

// For all launches from now on. Initially ISOBAR_EMULATOR_ORDER, or forward.
void set_schedule(const Schedule& schedule);
Schedule current_schedule();

// "forward", "reverse" or a number (the seed of a shuffle), and optionally ",lockstep". Throws Error on anything else.
Schedule parse_schedule(const std::string& text);
std::string name_of(const Schedule& schedule);

}  // namespace isobar::emulator
