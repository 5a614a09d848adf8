// Sentences for the user from code that has no log: a library is missing, or does something wrong, and the program does
// without it.
#pragma once

#include <string>
#include <vector>

namespace isobar {

// Tells a sentence, once a process: to whoever has called take_notices(), else as a line on stderr. From any thread.
void notice(const std::string& sentence);

// The sentences since the last call. From the first call on they wait for the next one.
std::vector<std::string> take_notices();

}  // namespace isobar
