// A program that runs as a child process, its output in a file. It ends with its parent: when the parent is killed, the
// system sends SIGTERM to the child.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace isobar {

class ChildProcess {
 public:
  struct Setup {
    std::vector<std::string> command;      // the program's file, and its arguments
    std::filesystem::path log;             // stdout and stderr are appended to it
    std::vector<std::string> environment;  // "NAME=VALUE": beside, or in the place of, this process's own
    int inherited = -1;                    // a descriptor that the child keeps open until it ends; negative: none
  };

  // Starts it from this thread, which has to live as long as the child. Error if there is no such program, if the log
  // cannot be written, or if the system grants no further process.
  explicit ChildProcess(const Setup& setup);
  // Stops it, and waits until it has ended.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  // The status of waitpid(), once it has ended; none before.
  std::optional<int> ended();
  // Sends SIGTERM, once.
  void stop();

 private:
  pid_t id_ = -1;  // negative: moved away
  bool is_stopped_ = false;
  std::optional<int> status_;
};

}  // namespace isobar
