// Code that may crash on damaged input, a library's say, tried in a child process first, where a crash does no harm.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace isobar {

inline constexpr double kTrialSeconds = 60;

// Forks; the child runs `task` without output, with at most ten seconds of processor time and 2 GiB more memory than
// this process has, and ends. Returns what became of it, for the end of a sentence ("crashes", "does not end", "does
// not come back", ...); nothing where `task` returned true, and where the system gives no child. A child that has not
// ended after `seconds`, since it waits for something, is killed. The task may use whatever this thread may use, but no
// other threads.
std::optional<std::string> trial(const std::function<bool()>& task, double seconds = kTrialSeconds);

// The same by a program, which calls run_trial with such a task: for a process that may not be forked, because a
// library (MPI, NCCL, CUDA) has threads in it or has registered its memory with a device.
std::optional<std::string> trial(const std::vector<std::string>& command, double seconds = kTrialSeconds);
[[noreturn]] void run_trial(const std::function<bool()>& task);

}  // namespace isobar
