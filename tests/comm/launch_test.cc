// Who a process is, by planted variables of every launcher, with the traps of each.
#include "comm/launch.h"

#include <map>

#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;

namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_of(const Variables& variables, bool resolves = true) {
  return find_launch(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found != variables.end() ? std::optional(found->second) : std::nullopt;
      },
      [=](const std::string&) { return resolves; });
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

void check_is(const Launch& launch, Launcher launcher, int rank, int ranks, int local_rank, int local_ranks) {
  CHECK(launch.launcher == launcher);
  CHECK(launch.rank == rank);
  CHECK(launch.ranks == ranks);
  CHECK(launch.local_rank == local_rank);
  CHECK(launch.local_ranks == local_ranks);
}

// A task of srun: the fifth of six on three nodes.
const Variables kSrun{{"SLURM_PROCID", "4"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_STEP_NUM_TASKS", "6"},
                      {"SLURM_NTASKS", "6"},
                      {"SLURM_STEP_TASKS_PER_NODE", "3,2,1"},
                      {"SLURM_STEP_NODELIST", "node[07-09]"},
                      {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"},
                      {"SLURM_JOB_ID", "17"},
                      {"SLURM_STEP_ID", "3"}};
// The shell of that job's batch script.
const Variables kBatch{{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"},          {"SLURM_NODEID", "0"},
                       {"SLURM_NTASKS", "6"}, {"SLURM_STEP_ID", "4294967291"}, {"SLURM_JOB_ID", "17"}};
const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "3"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                        {"PMIX_RANK", "3"}};
const Variables kTorchrun{{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};

}  // namespace

TEST_CASE("launch: every launcher tells rank, ranks, and those of the host") {
  check_is(launch_of({}), Launcher::none, 0, 1, 0, 1);
  check_is(launch_of(kMpirun), Launcher::open_mpi, 3, 4, 1, 2);
  check_is(launch_of(kSrun), Launcher::slurm, 4, 6, 1, 2);
  check_is(launch_of(kTorchrun), Launcher::torchrun, 5, 8, 1, 4);
  check_is(launch_of({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}}),
           Launcher::pmi, 2, 3, 2, 3);
  CHECK(!launch_of(kSrun).has_pmix);
  CHECK(launch_of(with(kSrun, {{"PMIX_RANK", "4"}})).has_pmix);
}

TEST_CASE("launch: launchers within each other, the inner one counts") {
  check_is(launch_of(kBatch), Launcher::none, 0, 1, 0, 1);
  check_is(launch_of(with(kBatch, {{"SLURM_STEP_NUM_TASKS", "6"}})), Launcher::none, 0, 1, 0, 1);
  check_is(launch_of(with(kBatch, kMpirun)), Launcher::open_mpi, 3, 4, 1, 2);
  check_is(launch_of(with(kSrun, kMpirun)), Launcher::open_mpi, 3, 4, 1, 2);
  check_is(launch_of(with(kBatch, kTorchrun)), Launcher::torchrun, 5, 8, 1, 4);
  // srun --mpi=pmi2 tells no local rank of its own.
  check_is(launch_of(with(kSrun, {{"PMI_RANK", "4"}, {"PMI_SIZE", "6"}})), Launcher::pmi, 4, 6, 1, 2);
  check_is(launch_of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), Launcher::none, 0, 1, 0, 1);
  check_is(launch_of({{"WORLD_SIZE", "many"}}), Launcher::none, 0, 1, 0, 1);
  check_is(launch_of({{"WORLD_SIZE", "1"}}), Launcher::torchrun, 0, 1, 0, 1);
}

TEST_CASE("launch: variables that do not fit together are named") {
  CHECK_THROWS_WITH(launch_of({{"WORLD_SIZE", "2"}}), "WORLD_SIZE is 2, but RANK says no rank");
  CHECK_THROWS_WITH(launch_of({{"WORLD_SIZE", "2"}, {"RANK", "x"}}), "WORLD_SIZE is 2, but RANK says no rank");
  CHECK_THROWS_WITH(launch_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "4"}}),
                    "OMPI_COMM_WORLD_RANK is 4, but OMPI_COMM_WORLD_SIZE is 4");
  CHECK_THROWS_WITH(launch_of({{"PMI_SIZE", "0"}, {"PMI_RANK", "0"}}), ContainsSubstring("PMI_SIZE is 0"));
  CHECK_THROWS_WITH(launch_of({{"PMI_SIZE", "99999999"}, {"PMI_RANK", "0"}}), ContainsSubstring("no number of ranks"));
  CHECK_THROWS_WITH(launch_of(with(kTorchrun, {{"MASTER_PORT", "99999"}})), "MASTER_PORT is 99999, which is no port");
  CHECK_THROWS_WITH(launch_of(with(kTorchrun, {{"MASTER_PORT", "http"}})), "MASTER_PORT is 'http', which is no port");
}

TEST_CASE("launch: where rank 0 is, and a port and a key of the job's own") {
  const Launch step = launch_of(kSrun);
  CHECK(step.address == "node07");
  CHECK(launch_of(kSrun, /*resolves=*/false).address == "10.0.0.1");
  const Launch told = launch_of(with(kSrun, {{"MASTER_ADDR", "login"}, {"MASTER_PORT", "29500"}}), false);
  CHECK(told.address == "login");
  CHECK(told.port == 29500);
  CHECK(launch_of(kTorchrun).address == "");

  CHECK(step.key == "17.3.");
  CHECK(step.port > 1024);
  CHECK(step.port == launch_of(with(kSrun, {{"SLURM_PROCID", "0"}})).port);  // the ranks agree
  // Requeued, in another step, in another job: another meeting.
  for (const auto& [name, value] :
       Variables{{"SLURM_RESTART_COUNT", "1"}, {"SLURM_STEP_ID", "4"}, {"SLURM_JOB_ID", "18"}}) {
    const Launch other = launch_of(with(kSrun, {{name, value}}));
    CHECK(other.key != step.key);
    CHECK(other.port != step.port);
  }
  CHECK(launch_of(with(kSrun, {{"ISOBAR_MEETING_KEY", "ours"}})).key == "ours");
}

TEST_CASE("launch: Slurm's lists of nodes and tasks") {
  using Hosts = std::vector<std::string>;
  CHECK(hosts_in("node[1-2,4],login07") == Hosts{"node1", "node2", "node4", "login07"});
  CHECK(hosts_in("nid[008-011]") == Hosts{"nid008", "nid009", "nid010", "nid011"});
  CHECK(hosts_in("rack[1-2]-a") == Hosts{"rack1-a", "rack2-a"});
  CHECK(hosts_in("one") == Hosts{"one"});
  CHECK(hosts_in("").empty());
  CHECK(hosts_in("node[x-y]") == Hosts{"node[x-y]"});
  CHECK(hosts_in("node[1-99999999999]") == Hosts{"node[1-99999999999]"});
  CHECK(tasks_in("2(x3),1") == std::vector<int>{2, 2, 2, 1});
  CHECK(tasks_in("4") == std::vector<int>{4});
  for (const char* none : {"", "x", "2(x", "2(x3", "0", "2(x0)", "2(x99999999)", "-1", "(x2)"})
    CHECK(tasks_in(none).empty());
}
