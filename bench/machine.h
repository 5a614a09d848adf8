// What a measurement was made on and with, so that a recorded number can be told from another.
#pragma once

#include <string>

namespace isobar::bench {

struct Machine {
  std::string cpu;              // its model, as the system names it
  std::string instruction_set;  // that isobar's kernels use; "avx512 + amx_bf16" with tiles
  int threads;
  std::string commit;  // of the sources when this program was built; "-dirty" where they were changed
};

Machine this_machine();

extern const char kCommit[];  // in a file that the build writes (bench/commit.cmake)

}  // namespace isobar::bench
