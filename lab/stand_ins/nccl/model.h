// Simulated durations of operations: each device has a clock that advances by the time that a ring of equal links would
// need. It shows the relative costs of ways to communicate, independent of the load of the test's machine.
//
// A ring of n ranks passes slices on: all_reduce in 2 (n - 1) turns, all_gather and reduce_scatter in n - 1, each of
// one slice. broadcast and reduce send everything once around, piece by piece. Operations of a group follow each other,
// each with its own ring: a group of n broadcasts takes n times as long as one. Messages of a group are sent together,
// in both directions at once. Work between operations takes no time here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "lab/stand_ins/nccl/segment.h"

namespace isobar::nccl::stand_in {

// ISOBAR_NCCL_STAND_IN_LINK=NANOSECONDS:BYTES: the latency of a turn, and the bytes that a link moves in a microsecond.
struct Link {
  double nanoseconds = 5000;
  double bytes_per_microsecond = 20000;
  static Link chosen() {
    Link link;
    const char* text = std::getenv("ISOBAR_NCCL_STAND_IN_LINK");
    if (text == nullptr) return link;
    char* rest = nullptr;
    link.nanoseconds = std::strtod(text, &rest);
    if (*rest == ':') link.bytes_per_microsecond = std::strtod(rest + 1, nullptr);
    return link;
  }
  double of(double bytes) const { return bytes / bytes_per_microsecond * 1000; }
};

// The duration of an operation. `bytes`: from NCCL's count, which is of one part for all_gather and reduce_scatter.
inline std::uint64_t nanoseconds_of(Verb verb, std::size_t bytes, int ranks, const Link& link) {
  const auto n = static_cast<double>(ranks), all = static_cast<double>(bytes);
  double time = 0;
  switch (verb) {
    case Verb::all_reduce:
      time = 2 * (n - 1) * (link.nanoseconds + link.of(all / n));
      break;
    case Verb::all_gather:
    case Verb::reduce_scatter:
      time = (n - 1) * (link.nanoseconds + link.of(all));
      break;
    case Verb::broadcast:
    case Verb::reduce:
      time = n > 1 ? (n - 1) * link.nanoseconds + link.of(all) : 0;
      break;
    case Verb::send:
    case Verb::receive:
      time = link.nanoseconds + link.of(all);
      break;
    case Verb::split:
      break;
  }
  return static_cast<std::uint64_t>(time);
}

}  // namespace isobar::nccl::stand_in
