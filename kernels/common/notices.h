// Sentences for the user from code that has no log: a library is missing, or gives wrong results, and the program
// continues without it.
#pragma once

#include <string>
#include <vector>

namespace isobar {

// A sentence is passed on once a process: to the next call of take_notices(), or to stderr if there was none yet. From
// any thread.
void notice(const std::string& sentence);

// The sentences since the last call. From the first call on they wait for the next one.
std::vector<std::string> take_notices();

}  // namespace isobar
