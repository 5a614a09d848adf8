// The one error type of isobar and the checks that throw it.
//
// Error carries one sentence for the user: the command prints it as "isobar: <sentence>" and exits with status 1.
// ISOBAR_CHECK(condition, parts...) throws it with the parts streamed together. The sentence must name the file, key,
// tensor or rank at fault. There is no stack trace: the sentence must say what to correct.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace isobar {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Streams its arguments into one string: concat("rank ", 3, " is gone").
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts>
[[noreturn]] void throw_error(const Parts&... parts) {
  throw Error(concat(parts...));
}

}  // namespace isobar

#define ISOBAR_CHECK(condition, ...)                      \
  do {                                                    \
    if (!(condition)) ::isobar::throw_error(__VA_ARGS__); \
  } while (0)
