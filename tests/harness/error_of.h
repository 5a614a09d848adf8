// The sentence of an error, for tests that compare it.
#pragma once

#include <functional>
#include <string>

#include "kernels/common/check.h"

namespace isobar::testing {

// What `body` is refused with; `otherwise` where it is not.
inline std::string error_of(const std::function<void()>& body, const std::string& otherwise = "") {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return otherwise;
}

}  // namespace isobar::testing
