// Code that may crash on damaged input, a library's say, tried in a child process first, where a crash does no harm.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace isobar {

// Forks; the child runs `task` without output, with at most ten seconds of processor time and 2 GiB more memory than
// this process has, and ends. Returns what became of it, for the end of a sentence ("crashes", "does not end", ...);
// nothing where `task` returned true, and where the system gives no child. The task may use whatever this thread may
// use, but no other threads.
std::optional<std::string> trial(const std::function<bool()>& task);

}  // namespace isobar
