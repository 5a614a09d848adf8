// The message of an error, for tests that compare it.
#pragma once

#include <functional>
#include <string>

#include "kernels/common/check.h"

namespace isobar::testing {

// The message of the Error that `body` throws; `otherwise` if it throws none.
inline std::string error_of(const std::function<void()>& body, const std::string& otherwise = "") {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return otherwise;
}

}  // namespace isobar::testing
