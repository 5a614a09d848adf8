// A fault planted for tests: ISOBAR_FAULT="rank=3 call=17 do=die|throw|hang|slow:SECONDS|garble|skew". It happens in
// the call-th collective of that rank of the world, counted from 1 over all groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace isobar {

struct Fault {
  enum class Kind : std::uint8_t {
    die,          // SIGKILL to this process
    fail,         // "throw": an Error
    hang,         // blocks until another rank has failed
    slow,         // joins the call later
    wrong_count,  // passes one element less
    skew          // multiplies the first element by 1.01: a wrong number, which the call does not detect
  };

  int rank = 0;
  std::int64_t call = 0;
  Kind kind = Kind::die;
  double seconds = 0;  // slow

  // Throws Error for any other text.
  static Fault parse(const std::string& text);
  // From ISOBAR_FAULT; none if it is unset or empty.
  static std::optional<Fault> from_environment();
};

}  // namespace isobar
