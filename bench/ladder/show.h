// `isobar-bench --ladder`: every rung of a ladder on one shape, beside the project's own kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isobar::bench {

struct LadderOptions {
  std::vector<std::string> subjects;  // layernorm, product, attention; empty: all
  std::vector<std::int64_t> shape;    // of the one subject; empty: its own
  double mean = 0;                    // of x, which layer norm reads; x is within 1 of it
  double seconds = 0.5;               // to spend on each rung, at least three calls
};

// Prints a table for each device that this build has and finds. Rungs are timed in turn, round after round, with the
// caches emptied before each call, so that whatever else the machine does slows all of them alike; ratios are of the
// least times. Emulated rungs are run under every schedule of the tests, on a smaller shape, and compared. Returns
// whether all results are within their bounds, but for rungs that are known to lose digits. Throws Error for a subject
// that does not exist, and for a shape of another one's number of sizes.
bool show_ladders(const LadderOptions& options);

}  // namespace isobar::bench
