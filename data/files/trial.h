// Tries code that may crash on damaged input, a library's say, in a child process first, where a crash does no harm.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace isobar {

inline constexpr double kTrialSeconds = 60;

// Forks. The child runs `task` without output, with at most 10 seconds of processor time and 2 GiB more memory than
// this process has, and exits. Returns the outcome for the end of a sentence ("crashes", "does not end", "does not come
// back", ...); none if `task` returned true or if the system could not create a child. A child that has not ended after
// `seconds` is killed. The task may use what this thread may use, but must not rely on other threads.
std::optional<std::string> trial(const std::function<bool()>& task, double seconds = kTrialSeconds);

// The same in a new program, which calls run_trial with such a task: for a process that must not fork because a library
// (MPI, NCCL, CUDA) runs threads in it or has registered its memory with a device.
std::optional<std::string> trial(const std::vector<std::string>& command, double seconds = kTrialSeconds);
[[noreturn]] void run_trial(const std::function<bool()>& task);

}  // namespace isobar
