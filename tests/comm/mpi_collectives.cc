// Every verb among processes, with the cases of verb_cases.h: mpirun -n N mpi_collectives [CASE]. Ends with status 0 or
// with one sentence, as isobar does.
//
//   verbs (the default)   every verb, groups, rounding; then all of it once more, cut into pieces of 7 elements
//   misfit                one rank hands in fewer elements: for ISOBAR_COMM_CHECK=1
//   absent                one rank comes after the time is over
//   error                 one rank throws
//   work                  one rank works alone, longer than the time of a call, before all meet
#include <chrono>
#include <string>
#include <thread>

#include "comm/mpi_backend.h"
#include "comm/process_ranks.h"
#include "kernels/common/check.h"
#include "kernels/common/printable.h"
#include "kernels/common/sentence.h"
#include "tests/comm/verb_cases.h"

using namespace isobar;

namespace {

void check_all(const Communicator& world) {
  testing::Findings findings;
  check_verbs(world, Device{}, findings);
  check_splits(world, Device{}, findings);
  check_rounding(world, Device{}, findings);
  ISOBAR_CHECK(findings.wrong().empty(), findings.wrong());
}

void run_case(const std::string& name, const Communicator& world) {
  const bool is_last = world.rank() == world.size() - 1;
  const Tensor x = Tensor::zeros({4}, DType::fp32, Device{});
  if (name == "verbs") {
    check_all(world);
    load_mpi().set_max_elements(7);
    check_all(world);
  } else if (name == "misfit") {
    world.all_reduce(is_last ? x.slice(0, {3}) : x);
  } else if (name == "absent") {
    world.all_reduce(x);
    if (is_last) std::this_thread::sleep_for(std::chrono::seconds(16));
    world.all_reduce(x);
  } else if (name == "error") {
    ISOBAR_CHECK(!is_last, "the disk is full");
    world.barrier();
  } else if (name == "work") {
    if (world.rank() == 1) {
      const Working working(world, "thinking", 10);
      std::this_thread::sleep_for(std::chrono::seconds(9));
    }
    world.barrier();
  } else {
    throw_error("there is no case ", name);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "verbs";
  // Within the short time MPI has to start too, on a machine that has other work.
  const bool is_short = name == "absent" || name == "work";
  try {
    run_process({.launch = find_launch(), .timeout_seconds = is_short ? 4.0 : 120.0},
                [&](const Communicator& world, const Launch&) { run_case(name, world); });
    return 0;
  } catch (const ErrorReportedByAnotherRank&) {
    end_process(1, /*has_reported=*/false);
  } catch (...) {
    print_line(sentence_of_current_exception());
    end_process(1, /*has_reported=*/true);
  }
  return 1;
}
