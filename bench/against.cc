#include "bench/against.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "kernels/common/check.h"

namespace isobar::bench {
namespace {

// A program that prints lines, and is stopped but for the time in which it makes the next one.
class TurnTaker {
 public:
  explicit TurnTaker(std::vector<std::string> command) : command_(std::move(command)) {}
  TurnTaker(const TurnTaker&) = delete;
  TurnTaker& operator=(const TurnTaker&) = delete;

  ~TurnTaker() {
    if (pid_ > 0 && !has_ended_) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (lines_ != nullptr) fclose(lines_);
    if (errors_ != nullptr) fclose(errors_);
    std::free(line_);
  }

  // The next line, without its end. Error with the last thing that the program said where there is none.
  std::string next() {
    if (pid_ == 0)
      start();
    else
      kill(-pid_, SIGCONT);
    const ssize_t length = getline(&line_, &capacity_, lines_);
    ISOBAR_CHECK(length > 0, "--against: ", command_.front(), " ended without a result: ", last_words());
    stop();
    return {line_, static_cast<std::size_t>(length) - (line_[length - 1] == '\n' ? 1 : 0)};
  }

 private:
  void start() {
    std::array<int, 2> pipe_ends{};
    errors_ = std::tmpfile();
    ISOBAR_CHECK(errors_ != nullptr && pipe2(pipe_ends.data(), O_CLOEXEC) == 0, "--against: ", command_.front(),
                 " cannot be run: there is no file or pipe for what it prints");
    std::vector<char*> words;
    for (std::string& word : command_) words.push_back(word.data());
    words.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      // A group of its own, so that all of it stops; and no longer alive than this process.
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);
      dup2(pipe_ends[1], STDOUT_FILENO);
      dup2(fileno(errors_), STDERR_FILENO);
      execv(words.front(), words.data());
      dprintf(STDERR_FILENO, "it cannot be executed\n");
      _exit(127);
    }
    ISOBAR_CHECK(pid_ > 0, "--against: ", command_.front(), " cannot be run: there are too many processes");
    setpgid(pid_, pid_);  // whoever of the two comes first
    close(pipe_ends[1]);
    lines_ = fdopen(pipe_ends[0], "r");
  }

  // Returns when it has stopped, or has ended after its last line. A process in vfork whose child is stopped before
  // exec never reports that it has stopped, but it does not run either: after a fifth of a second it counts as stopped.
  void stop() {
    constexpr auto kPause = std::chrono::microseconds(200);
    constexpr int kPauses = 1000;
    int status = 0;
    pid_t changed = 0;
    kill(-pid_, SIGSTOP);
    for (int i = 0; i < kPauses && (changed = waitpid(pid_, &status, WUNTRACED | WNOHANG)) == 0; ++i)
      std::this_thread::sleep_for(kPause);
    has_ended_ = changed == pid_ && !WIFSTOPPED(status);
  }

  std::string last_words() {
    waitpid(pid_, nullptr, 0);  // all that it says has been said
    has_ended_ = true;
    rewind(errors_);
    std::string last = "it says nothing";
    while (getline(&line_, &capacity_, errors_) > 0) last = line_;
    while (!last.empty() && last.back() == '\n') last.pop_back();
    return last;
  }

  std::vector<std::string> command_;
  pid_t pid_ = 0;
  bool has_ended_ = false;
  FILE* lines_ = nullptr;
  FILE* errors_ = nullptr;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

// A program that times all ops, one after the other, and then again.
std::vector<std::string> command_of(const std::string& program, const std::vector<Timed>& timed, double seconds,
                                    int threads) {
  std::vector<std::string> words = {program,     "--json",
                                    "--dtype",   timed.front().dtype,
                                    "--device",  timed.front().device,
                                    "--seconds", concat(seconds / kRounds)};
  if (threads > 0) words.insert(words.end(), {"--threads", std::to_string(threads)});
  for (int round = 0; round < kRounds; ++round) {
    for (const Timed& one : timed) words.insert(words.end(), {"--op", one.op, "--shape", one.shape});
  }
  return words;
}

// The least seconds of the burst that a line tells of.
double seconds_in(const std::string& line, const Timed& timed, const std::string& program) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  ISOBAR_CHECK(json.is_object() && json.value("microseconds_min", 0.0) > 0, "--against: ", program,
               " is no isobar-bench: it prints ", line.substr(0, 80));
  ISOBAR_CHECK(json.value("op", "") == timed.op && json.value("shape", "") == timed.shape, "--against: ", program,
               " has timed ", json.value("op", ""), ' ', json.value("shape", ""), " instead of ", timed.op, ' ',
               timed.shape);
  return json["microseconds_min"].get<double>() * 1e-6;
}

double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

}  // namespace

bool is_program(const std::string& file) {
  if (!std::filesystem::is_regular_file(file) || access(file.c_str(), X_OK) != 0) return false;
  return std::ifstream(file).peek() != '{';  // of results, where a file system calls everything executable
}

std::vector<Comparison> compare(const std::string& old_program, const std::vector<Timed>& timed, double seconds,
                                int threads) {
  const std::array<std::string, 2> programs = {std::filesystem::read_symlink("/proc/self/exe"),
                                               std::filesystem::absolute(old_program)};
  TurnTaker now(command_of(programs[0], timed, seconds, threads));
  TurnTaker old(command_of(programs[1], timed, seconds, threads));
  std::vector<std::array<std::vector<double>, 2>> least_of_bursts(timed.size());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < timed.size(); ++i) {
      // Whoever was second is first next time: what changes slowly changes both alike.
      for (const int which : {round % 2, 1 - round % 2}) {
        const auto at = static_cast<std::size_t>(which);
        const std::string line = (which == 0 ? now : old).next();
        least_of_bursts[i][at].push_back(seconds_in(line, timed[i], programs[at]));
      }
    }
  }
  std::vector<Comparison> comparisons;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const auto& [news, olds] = least_of_bursts[i];
    comparisons.push_back({timed[i], least(news), least(olds), ratio_of(news, olds)});
  }
  return comparisons;
}

}  // namespace isobar::bench
