// How the threads of every program wait (kernels/cpu/brief_spin.cc), read off what libgomp says about itself.
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <string>

#include "kernels/common/check.h"
#include "kernels/cpu/brief_spin.h"
#include "tests/harness/places.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

// What a command prints, errors included.
std::string output_of(const std::string& command) {
  FILE* pipe = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  ISOBAR_CHECK(pipe != nullptr, "cannot run ", command);
  std::string text;
  char buffer[4096];
  for (std::size_t size; (size = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, size);
  pclose(pipe);
  return text;
}

// How often threads of `program` spin before they sleep, as libgomp prints it, where `setting` is all the user says.
std::string spins_of(const std::string& program, const std::string& setting = "") {
  const std::string text =
      output_of("env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose " + setting + " " + program);
  const std::string name = "GOMP_SPINCOUNT = '";
  const std::size_t at = text.find(name);
  INFO(text);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at + name.size();
  return text.substr(begin, text.find('\'', begin) - begin);
}

const std::string kProgram = kIsobar, kBench = kIsobarBench;

std::string this_program() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  ISOBAR_CHECK(length > 0, "/proc/self/exe cannot be read");
  return {path, static_cast<std::size_t>(length)};
}

}  // namespace

// 0 where other processes compute while this test runs.
TEST_CASE("threads that wait spin briefly in every program, or not at all, without the user setting anything") {
  for (const std::string& command : {kProgram + " --version", kBench + " --list", this_program() + " --list-tests"}) {
    const std::string spins = spins_of(command, "OMP_NUM_THREADS=1");
    INFO(command << ": " << spins);
    CHECK((spins == "20000" || spins == "0"));
  }
}

TEST_CASE("threads that wait sleep at once where more threads want to run than there are CPUs") {
  CHECK(spins_of(kProgram + " --version", "OMP_NUM_THREADS=100000") == "0");
  using cpu::is_too_busy_to_spin;
  CHECK(!is_too_busy_to_spin("9.51 10.82 9.86 1/194 1118\n", 2, 2));  // this process alone
  CHECK(is_too_busy_to_spin("0.00 0.00 0.00 2/194 1118\n", 2, 2));
  CHECK(!is_too_busy_to_spin("0.00 0.00 0.00 2/194 1118\n", 1, 2));
  CHECK(!is_too_busy_to_spin("0.52 0.58 0.59 33/602 29797\n", 32, 64));
  CHECK(is_too_busy_to_spin("0.52 0.58 0.59 34/602 29797\n", 32, 64));
  CHECK(!is_too_busy_to_spin("", 100, 1));
  CHECK(!is_too_busy_to_spin("nothing", 100, 1));
}

TEST_CASE("how threads wait is the user's choice where there is one") {
  CHECK(spins_of(kProgram + " --version", "GOMP_SPINCOUNT=5") == "5");
  CHECK(spins_of(kProgram + " --version", "OMP_WAIT_POLICY=active") != "20000");
  CHECK(spins_of(kProgram + " --version", "OMP_WAIT_POLICY=passive") == "0");
}

TEST_CASE("a program that starts itself once more keeps its arguments, environment and streams") {
  const std::string clean = "env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT ";
  CHECK(output_of(clean + kProgram + " train --config 'a  b'").find("a  b") != std::string::npos);
  CHECK(output_of(clean + "ISOBAR_MAX_ISA=generic " + kProgram + " info").find("generic") != std::string::npos);
  CHECK(output_of(clean + "sh -c 'exec 3>&1; " + kProgram + " --version >&3'").find("isobar ") == 0);
}

}  // namespace isobar::testing
