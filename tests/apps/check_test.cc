// isobar check: every layout of eight ranks beside one rank.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tests/harness/environment_variable.h"
#include "tests/harness/isobar_command.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;
using testing::isobar_command;
using testing::Outcome;

// "loss 1.2e-16 of the largest element, 3.4e-05 of the bound": of the bound, of the line that begins with this.
double of_bound(const std::string& out, const std::string& what) {
  const std::size_t line = out.find("\n" + what + " "), element = out.find("of the largest element, ", line);
  REQUIRE(line != std::string::npos);
  REQUIRE(element != std::string::npos);
  return std::stod(out.substr(element + std::string("of the largest element, ").size()));
}

// "gradients 1.2e-03 of the largest element": the number of the line that begins with this.
double of_largest(const std::string& out, const std::string& what) {
  const std::size_t line = out.find("\n" + what + " ");
  REQUIRE(line != std::string::npos);
  return std::stod(out.substr(line + 1 + what.size()));
}

// Numbers were compared, of every step; a judge that looks at one run alone finds no difference at all.
void check_compared(const std::string& out) {
  for (const char* what : {"gradients", "weights"}) CHECK(of_bound(out, what) > 0);
  for (const char* what : {"loss", "norm"}) {
    const std::size_t line = out.find(std::string("\n") + what + " ");
    CHECK_THAT(out.substr(line + 1, out.find('\n', line + 1) - line), ContainsSubstring("of the bound, of 3 steps"));
  }
}

// "gradients ... of 55 tensors"
int tensors_of(const std::string& out) {
  const std::size_t line = out.find("\ngradients "), count = out.find(", of ", out.find(", at ", line));
  REQUIRE(line != std::string::npos);
  REQUIRE(count != std::string::npos);
  return std::stoi(out.substr(count + 5));
}

class Checks {
 public:
  Checks() {
    const Outcome made = isobar_command(
        folder_.path(), "data synth --out " + (folder_ / "data").string() +
                            " --train-years 1 --valid-years 1 --steps-per-year 40 --grid 16x32 --channels 4");
    REQUIRE(made.status == 0);
  }
  Outcome check(const std::string& arguments) const {
    return isobar_command(folder_.path(),
                          "check --config tiny --data " + (folder_ / "data").string() +
                              " --threads 1 --set embed_dim=64 --set num_heads=8 --set patch_size=2 --set dropout=0.1"
                              " --set warmup=0 " +
                              arguments);
  }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  testing::TemporaryFolder folder_;
};

TEST_CASE("check: every layout of eight ranks passes") {
  const Checks checks;
  for (int tp = 1; tp <= 8; tp *= 2) {
    for (int cp = 1; tp * cp <= 8; cp *= 2) {
      const std::string layout = " --tensor-parallel " + std::to_string(tp) + " --context-parallel " +
                                 std::to_string(cp) + (tp > 1 && cp != 2 ? " --sequence-parallel" : "") +
                                 (cp == 4 ? " --context-form ring" : "") + (cp == 2 ? " --shard-optimizer" : "");
      INFO(layout);
      const Outcome outcome = checks.check("--set dtype=fp64 --ranks 8" + layout);
      INFO(outcome.out << outcome.err);
      CHECK(outcome.status == 0);
      CHECK(outcome.err == "");
      CHECK_THAT(outcome.out,
                 ContainsSubstring("three steps of dp " + std::to_string(8 / tp / cp) + " x tp " + std::to_string(tp) +
                                   " x cp " + std::to_string(cp) + " beside one rank, fp64 on cpu\nloss ") &&
                     ContainsSubstring("of the bound, at ") && ContainsSubstring("\npassed\n"));
      check_compared(outcome.out);
    }
  }
}

TEST_CASE("check: lower precisions, and what cannot be checked") {
  const Checks checks;
  for (const std::string precision : {"none", "bf16", "fp16"}) {
    const Outcome outcome = checks.check("--ranks 8 --tensor-parallel 2 --context-parallel 2 --amp-mode " + precision);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    check_compared(outcome.out);
    const double farthest = std::max(of_bound(outcome.out, "gradients"), of_bound(outcome.out, "weights"));
    if (precision == "bf16") CHECK(farthest > 0.05);                     // a bound that is far wider would see nothing
    for (const char* what : {"loss", "norm", "gradients", "weights"}) {  // loss scales are divided out
      INFO(what);
      CHECK(of_largest(outcome.out, what) < 0.1);
    }
  }
  // What only a run has, and would mean nothing here.
  for (const std::string flag : {"--run-dir=RUN", "--init=FILE", "--resume", "--overwrite", "--list-keys",
                                 "--list-configs", "--comm-report", "--late-agreement", "--run-num=1", "--noddp",
                                 "--enable-fused", "--enable-jit", "--disable-broadcast-buffers"}) {
    const Outcome outcome = checks.check("--ranks 2 " + flag);
    INFO(flag << ": " << outcome.out);
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.err, ContainsSubstring("isobar: there is no flag " + flag.substr(0, flag.find('='))));
  }
  CHECK_THAT(checks.check("--ranks 3 --tensor-parallel 2").err, ContainsSubstring("is no multiple of"));
  CHECK_THAT(checks.check("--ranks 8 --context-parallel 8 --set patch_size=4").err,
             ContainsSubstring("are 4 rows of patches, and each of 8 ranks needs one"));
}

// Data without statistics have them computed; what another user left in the folder for temporary files is not taken.
TEST_CASE("check: statistics are of the data at hand") {
  const Checks checks;
  std::filesystem::remove_all(checks / "data/stats");
  std::filesystem::create_directories(checks / "temporary/isobar_check");
  for (const char* file : {"global_means.npy", "global_stds.npy", "time_means.npy"})
    std::ofstream(checks / "temporary/isobar_check" / file) << "somebody else's";
  const testing::EnvironmentVariable temporary("TMPDIR", (checks / "temporary").c_str());
  const Outcome outcome = checks.check("--ranks 2");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK_THAT(outcome.out, ContainsSubstring("no statistics in " + (checks / "data").string() +
                                            ": they are made from the training steps\nthree steps of dp 2 x "));
}

TEST_CASE("check: two blocks are enough, and all of them are checked where that is asked for") {
  const Checks checks;
  const auto tensors = [&](const std::string& arguments) {
    const Outcome outcome = checks.check("--set dtype=fp64 --ranks 2 --set global_batch_size=2 " + arguments);
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    return tensors_of(outcome.out);
  };
  const int one = tensors("--set depth=1"), two = tensors("--set depth=2");  // no more than the config has
  CHECK(two > one);
  CHECK(tensors("--set depth=4") == two);
  CHECK(tensors("--set depth=4 --full") == two + 2 * (two - one));
  // A sample a data rank, whatever the config's batch is.
  CHECK(checks.check("--ranks 2 --set global_batch_size=3").status == 0);
  CHECK(checks.check("--ranks 2 --set global_batch_size=3 --set grad_accumulation=3").status == 0);  // and a part
  CHECK(checks.check("--ranks 2 --set global_batch_size=3 --set dtype=fp64 --full").status == 0);
  CHECK_THAT(checks.check("--ranks 2 --set global_batch_size=1 --full").err, ContainsSubstring("global_batch_size"));
}

TEST_CASE("check: a layout that is wrong fails, and what is wrong is told") {
  const Checks checks;
  const auto failed = [&](const std::string& arguments, const char* fault) {
    setenv("ISOBAR_FAULT", fault, 1);
    const Outcome outcome = checks.check(arguments);
    unsetenv("ISOBAR_FAULT");
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == 1);
    CHECK_THAT(outcome.out, ContainsSubstring("\nfailed\n"));
    return outcome.out;
  };
  // One number of a sum of gradients, in the last of the three steps.
  const std::string out = failed("--set dtype=fp64 --ranks 2 --bucket-cap-mb 0.001", "rank=1 call=45 do=skew");
  CHECK(of_bound(out, "gradients") > 1);
  CHECK(of_bound(out, "weights") > 1);
  CHECK(of_bound(out, "loss") <= 1);
}

}  // namespace
}  // namespace isobar
