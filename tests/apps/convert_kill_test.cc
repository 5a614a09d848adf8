// `isobar data convert` that is killed at any moment goes on, and ends with the bytes of a run that was not.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <string>

#include "engine/files/reader.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::isobar_command;
using testing::Outcome;
namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

void check_same(const fs::path& made, const fs::path& whole) {
  for (const char* year : {"1979.h5", "1980.h5"}) CHECK((read_file(made / year) == read_file(whole / year)));
  CHECK(std::distance(fs::directory_iterator(made), {}) == 2);
}

}  // namespace

// Which moments meet the middle of a file depends on the machine; tests/data/fields/restartable_file_test.cc has each
// of them for certain.
TEST_CASE("data convert: killed twenty times at random moments, it ends with the same bytes") {
  const testing::TemporaryFolder folder;
  const std::string sources = folder / "d/train", whole = folder / "whole", out = folder / "made";
  REQUIRE(isobar_command(folder.path(),
                         "data synth --train-years 2 --steps-per-year 12 --out " + folder.path().string() + "/d")
              .status == 0);
  const auto convert = [&](const std::string& to, const std::function<void(pid_t)>& meanwhile = {}) {
    return isobar_command(
        folder.path(), "data convert " + sources + " --channels t2m,cos_zenith,u10 --threads 4 --out " + to, meanwhile);
  };
  const auto begin = Clock::now();
  REQUIRE(convert(whole).status == 0);
  const auto undisturbed = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);

  std::minstd_rand random(7);
  int kills = 0;
  while (kills < 20) {
    // In the first half: a run that goes on is shorter, and one that is not killed is no test.
    const auto moment = static_cast<useconds_t>(random() % static_cast<std::uint64_t>(undisturbed.count() / 2 + 1));
    const Outcome outcome = convert(out, [&](pid_t child) {
      ::usleep(moment);
      ::kill(child, SIGKILL);
    });
    if (outcome.status == 0) {
      check_same(out, whole);
      fs::remove_all(out);
    } else {
      CHECK(outcome.status == -SIGKILL);
      CHECK(outcome.err.empty());
      ++kills;
    }
  }
  const Outcome last = convert(out);
  CHECK(last.err.empty());
  CHECK(last.status == 0);
  check_same(out, whole);
}
