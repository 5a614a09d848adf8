// Test cases that must fail, to prove that the checks which tests use can fail. They are hidden (a tag that begins with
// a dot) and run in a separate process.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace isobar::testing {

// The exit status of this program when it runs these cases, with its output dropped; -1 if a signal ended it.
inline int status_of_cases(const std::string& cases) {
  // --abort: at most one assertion fails. Some versions of Catch2 use the number of failures as the status.
  const std::string command = "exec /proc/" + std::to_string(getpid()) + "/exe --abort '" + cases + "' >/dev/null 2>&1";
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Whether Catch2 reports a failure: status 1 in some versions, 42 in others.
inline bool fails(const std::string& cases) {
  const int status = status_of_cases(cases);
  return status == 1 || status == 42;
}

}  // namespace isobar::testing
