// A fault planted for tests: ISOBAR_FAULT="rank=3 call=17 do=die|throw|hang|slow:SECONDS|garble|skew". It happens at
// the call-th collective of that rank of the world, whatever the group, counted from 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace isobar {

struct Fault {
  enum class Kind : std::uint8_t {
    die,     // SIGKILL to this process
    fail,    // "throw": an Error
    hang,    // does not come back until another rank has failed
    slow,    // comes later
    garble,  // hands in one element less
    skew     // hands in 1.01 times the first element: a wrong number, which nobody notices in the call
  };

  int rank = 0;
  std::int64_t call = 0;
  Kind kind = Kind::die;
  double seconds = 0;  // slow

  // Throws Error for text that is none of the above.
  static Fault parse(const std::string& text);
  // Of ISOBAR_FAULT; none where it is not set or empty.
  static std::optional<Fault> from_environment();
};

}  // namespace isobar
