// The network name of this machine.
#pragma once

#include <unistd.h>

#include <string>

namespace isobar {

inline std::string host_name() {
  char name[256] = "";
  return ::gethostname(name, sizeof name - 1) == 0 && name[0] != '\0' ? name : "localhost";
}

}  // namespace isobar
