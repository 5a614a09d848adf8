// isobar-bench --against PROGRAM: this program beside an older one on a machine that may do other things too.
//
// Each is a process of its own that times the ops again and again. While one times a burst of calls the other is
// stopped (SIGSTOP), and they take turns. An older program needs to know nothing of that: it prints a line of JSON
// after each burst, as it always has.
#pragma once

#include <string>
#include <vector>

#include "bench/ratio.h"

namespace isobar::bench {

constexpr int kRounds = 9;

// What both programs time: an op, with what the command line says of it.
struct Timed {
  std::string op, shape, dtype, device;
};

struct Comparison {
  Timed timed;
  double seconds, old_seconds;  // the least of all calls
  Ratio ratio;                  // of the least seconds of each burst
};

bool is_program(const std::string& file);  // which can be run; a file of results cannot

// One for each of `timed`, in its order. `seconds`: the time to spend on each of them and each program, in all rounds;
// `threads`: 0 for the default. Throws an Error with the sentence of a program that fails, or that times something
// else.
std::vector<Comparison> compare(const std::string& old_program, const std::vector<Timed>& timed, double seconds,
                                int threads);

}  // namespace isobar::bench
