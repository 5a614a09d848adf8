// How long operations take, made up: a clock of each device that goes on by what a ring of equal links would need. It
// says what a way of communicating costs beside another one, whatever the machine of the test does meanwhile.
//
// A ring of n ranks passes slices on: all_reduce in 2 (n - 1) turns, all_gather and reduce_scatter in n - 1, each of
// one slice. broadcast and reduce send everything once round, piece behind piece. Operations of a group follow each
// other, each a ring of its own: a group of n broadcasts takes n times as long as one. Messages of a group travel
// together, in both directions at once. Work between operations takes no time here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tests/stand_ins/nccl/segment.h"

namespace isobar::nccl::stand_in {

// ISOBAR_NCCL_STAND_IN_LINK=NANOSECONDS:BYTES, of latency a turn and the bytes that a link moves in a microsecond.
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

// Of an operation in nanoseconds; `bytes` is what NCCL's count says: of one part for all_gather and reduce_scatter.
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
