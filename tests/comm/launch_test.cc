// Who a process is, by planted variables of every launcher, with the traps of each.
#include "comm/launch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <set>

#include "comm/process_ranks.h"
#include "kernels/common/check.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/kept.h"
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
// What srun --mpi=pmi2, pmix and cray_shasta add for that task (Slurm 22.05; then as Cray's own Slurm has it).
const Variables kPmi2{
    {"PMI_FD", "11"}, {"PMI_JOBID", "17.3"}, {"PMI_RANK", "4"}, {"PMI_SIZE", "6"}, {"SLURM_MPI_TYPE", "pmi2"}};
const Variables kPmix{{"PMIX_RANK", "4"}, {"PMIX_NAMESPACE", "slurm.pmix.17.3"}, {"SLURM_MPI_TYPE", "pmix"}};
const Variables kCrayShasta{
    {"PALS_APID", "17.3"}, {"PALS_RANKID", "4"}, {"PALS_NODEID", "1"}, {"SLURM_MPI_TYPE", "cray_shasta"}};
const Variables kNewCrayShasta = with(kCrayShasta, {{"PMI_RANK", "4"},
                                                    {"PMI_SIZE", "6"},
                                                    {"PMI_LOCAL_RANK", "1"},
                                                    {"PMI_LOCAL_SIZE", "2"},
                                                    {"PMI_CONTROL_PORT", "20001"}});
// PALS' mpiexec: the sixth of twelve, four a node.
const Variables kPals{{"PALS_APID", "1f2e3d"},      {"PALS_RANKID", "5"},     {"PALS_NODEID", "1"},
                      {"PALS_LOCAL_RANKID", "1"},   {"PALS_LOCAL_SIZE", "4"}, {"PMI_RANK", "5"},
                      {"PMI_SIZE", "12"},           {"PMI_LOCAL_RANK", "1"},  {"PMI_LOCAL_SIZE", "4"},
                      {"PMI_CONTROL_PORT", "6001"}, {"PBS_JOBID", "9.pbs"}};
// flux run: the same. It clears SLURM_*, and serves PMI.
const Variables kFlux{{"FLUX_TASK_RANK", "5"},  {"FLUX_TASK_LOCAL_ID", "1"}, {"FLUX_JOB_SIZE", "12"},
                      {"FLUX_JOB_NNODES", "3"}, {"FLUX_JOB_ID", "f2Xyz"},    {"PMI_FD", "9"},
                      {"PMI_RANK", "5"},        {"PMI_SIZE", "12"}};
const Variables kMvapich{{"MV2_COMM_WORLD_RANK", "2"},
                         {"MV2_COMM_WORLD_SIZE", "3"},
                         {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                         {"MV2_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"PMI_ID", "2"}};
// MPICH's and Intel's.
const Variables kHydra{
    {"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"PMI_FD", "7"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "3"}};
const Variables kTorchrun{{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}};

}  // namespace

TEST_CASE("launch: every launcher tells rank, ranks, and those of the host") {
  check_is(launch_of({}), Launcher::none, 0, 1, 0, 1);
  check_is(launch_of(kMpirun), Launcher::open_mpi, 3, 4, 1, 2);
  check_is(launch_of(kSrun), Launcher::slurm, 4, 6, 1, 2);
  check_is(launch_of(kTorchrun), Launcher::torchrun, 5, 8, 1, 4);
  check_is(launch_of(kPals), Launcher::pmi, 5, 12, 1, 4);
  check_is(launch_of(kFlux), Launcher::flux, 5, 12, 1, 1);  // how many are on this host it does not say
  check_is(launch_of(kMvapich), Launcher::pmi, 2, 3, 1, 2);
  check_is(launch_of({{"MVP_COMM_WORLD_RANK", "2"},
                      {"MVP_COMM_WORLD_SIZE", "3"},
                      {"MVP_COMM_WORLD_LOCAL_RANK", "1"},
                      {"MVP_COMM_WORLD_LOCAL_SIZE", "2"}}),
           Launcher::pmi, 2, 3, 1, 2);
  check_is(launch_of(kHydra), Launcher::pmi, 2, 3, 2, 3);
  CHECK(!launch_of(kSrun).has_pmix);
  CHECK(launch_of(with(kSrun, kPmix)).has_pmix);
}

TEST_CASE("launch: a local rank without the number of those of its host is kept, and said to be half told") {
  Variables torchrun = kTorchrun;
  torchrun.erase("LOCAL_WORLD_SIZE");
  check_is(launch_of(torchrun), Launcher::torchrun, 5, 8, 1, 1);
  const Variables unreadable = with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "?"}});
  check_is(launch_of(unreadable), Launcher::slurm, 4, 6, 1, 1);
  const Variables bare{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}};
  check_is(launch_of(bare), Launcher::pmi, 2, 3, 0, 1);
  for (const Variables& half : {torchrun, unreadable, bare, kFlux}) CHECK(!launch_of(half).is_local_rank_known);
  for (const Variables& whole : {kMpirun, kSrun, kTorchrun, kPals, kMvapich, kHydra})
    CHECK(launch_of(whole).is_local_rank_known);
}

TEST_CASE("launch: srun's variables count beside those that each --mpi adds") {
  for (const Variables& added : {kPmi2, kPmix, kCrayShasta, kNewCrayShasta}) {
    const Launch launch = launch_of(with(kSrun, added));
    check_is(launch, Launcher::slurm, 4, 6, 1, 2);
    CHECK(launch.address == "node07");
    CHECK(launch.key == "17.3.");
    CHECK_NOTHROW(check_can_start(launch, /*by_nccl=*/true));  // opens no MPI plugin
  }
}

TEST_CASE("launch: launchers within each other, the inner one counts") {
  check_is(launch_of(kBatch), Launcher::none, 0, 1, 0, 1);
  // Shells of batch scripts, interactive ones and those that Slurm starts for itself; then the last of numbered steps.
  for (const char* special : {"4294967280", "4294967290", "4294967291", "4294967292"})
    check_is(launch_of(with(kBatch, {{"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_STEP_ID", special}})), Launcher::none, 0, 1,
             0, 1);
  check_is(launch_of(with(kSrun, {{"SLURM_STEP_ID", "4294967279"}})), Launcher::slurm, 4, 6, 1, 2);
  check_is(launch_of(with(kBatch, kMpirun)), Launcher::open_mpi, 3, 4, 1, 2);
  check_is(launch_of(with(kSrun, kMpirun)), Launcher::open_mpi, 3, 4, 1, 2);
  CHECK(launch_of(with(kSrun, kMpirun)).address == "");  // mpirun may order the nodes in another way
  CHECK(launch_of(with(kSrun, kMpirun)).why_no_address == "where rank 0 is is not known");
  check_is(launch_of(with(kBatch, kTorchrun)), Launcher::torchrun, 5, 8, 1, 4);
  // Daemons of MPICH's, Intel's and MVAPICH's mpirun, which srun has started, one a node.
  const Variables daemon = with(kSrun, {{"SLURM_STEP_NUM_TASKS", "3"}, {"SLURM_PROCID", "1"}});
  check_is(launch_of(with(daemon, kHydra)), Launcher::pmi, 2, 3, 2, 3);
  CHECK(launch_of(with(daemon, kHydra)).address == "127.0.0.1");
  check_is(launch_of(with(daemon, kMvapich)), Launcher::pmi, 2, 3, 1, 2);
  CHECK(launch_of(with(daemon, kMvapich)).address == "");  // its nodes need not be in srun's order
  check_is(launch_of(with(daemon, kPals)), Launcher::pmi, 5, 12, 1, 4);
  check_is(launch_of(with(daemon, kFlux)), Launcher::flux, 5, 12, 1, 1);
  // srun torchrun: one agent a node.
  check_is(launch_of(with(daemon, with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}}))), Launcher::torchrun, 5, 8, 1, 4);
  check_is(launch_of(with(kSrun, kTorchrun)), Launcher::slurm, 4, 6, 1, 2);
  check_is(launch_of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}), Launcher::none, 0, 1, 0, 1);
  check_is(launch_of({{"WORLD_SIZE", "many"}}), Launcher::none, 0, 1, 0, 1);
  check_is(launch_of({{"WORLD_SIZE", "1"}}), Launcher::torchrun, 0, 1, 0, 1);
}

TEST_CASE("launch: a rank without a number of ranks is refused") {
  check_is(launch_of({{"PMIX_RANK", "0"}}), Launcher::none, 0, 1, 0, 1);
  CHECK_THROWS_WITH(launch_of({{"PMIX_RANK", "2"}}),
                    "PMIX_RANK is 2, but no variable says how many ranks there are: set RANK and WORLD_SIZE");
  CHECK_THROWS_WITH(launch_of({{"PALS_RANKID", "1"}}), ContainsSubstring("PALS_RANKID is 1"));
}

TEST_CASE("launch: heterogeneous jobs as Slurm tells their whole step, or refused") {
  // srun --het-group=0,1 of components of 1 and 3 tasks, as Slurm 22.05 sets it, and of the second one alone.
  const Variables both = with(kSrun, {{"SLURM_HET_SIZE", "2"},
                                      {"SLURM_STEP_NUM_TASKS", "4"},
                                      {"SLURM_PROCID", "2"},
                                      {"SLURM_STEP_TASKS_PER_NODE", "1,2,1"},
                                      {"SLURM_STEP_NODELIST", "node[1-3]"},
                                      {"SLURM_JOB_NODELIST_HET_GROUP_0", "node1"},
                                      {"SLURM_JOB_NODELIST_HET_GROUP_1", "node[2-3]"}});
  check_is(launch_of(both), Launcher::slurm, 2, 4, 1, 2);
  CHECK(launch_of(both).address == "node1");
  const Variables second = with(both, {{"SLURM_STEP_NUM_TASKS", "3"},
                                       {"SLURM_PROCID", "1"},
                                       {"SLURM_NODEID", "0"},
                                       {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                                       {"SLURM_STEP_NODELIST", "node[2-3]"}});
  check_is(launch_of(second), Launcher::slurm, 1, 3, 1, 2);
  CHECK(launch_of(second).address == "node2");
  for (const char* part : {"2,1", "1", "?"})
    CHECK_THROWS_WITH(launch_of(with(both, {{"SLURM_STEP_TASKS_PER_NODE", part}})),
                      concat("SLURM_HET_SIZE is 2: SLURM_STEP_NUM_TASKS is 4, but SLURM_STEP_TASKS_PER_NODE is '", part,
                             "': this Slurm does not tell a rank where those of other components are; use one "
                             "component"));
  check_is(launch_of(with(both, {{"SLURM_HET_SIZE", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "2,1"}})), Launcher::slurm, 2,
           4, 1, 1);  // a job of one component is none of these
}

TEST_CASE("launch: where an arbitrary distribution puts rank 0 must be said") {
  const Variables arbitrary = with(kSrun, {{"SLURM_DISTRIBUTION", "arbitrary"}, {"SLURM_HOSTFILE", "hosts"}});
  CHECK(launch_of(arbitrary).address == "");
  CHECK_THROWS_WITH(
      check_can_start(launch_of(arbitrary), /*by_nccl=*/true),
      "SLURM_STEP_NUM_TASKS is 6, but SLURM_DISTRIBUTION is arbitrary, so that the list of nodes does not "
      "say where rank 0 is: set MASTER_ADDR to its host");
  CHECK(launch_of(with(arbitrary, {{"MASTER_ADDR", "node09"}})).address == "node09");
  for (const char* in_order : {"block", "cyclic", "plane"})
    CHECK(launch_of(with(kSrun, {{"SLURM_DISTRIBUTION", in_order}})).address == "node07");
}

TEST_CASE("launch: NCCL's ranks meet without an MPI wherever variables say where") {
  Variables all_here = kPals;
  for (const auto& [name, size] : Variables{{"PMI_SIZE", "8"}, {"PMI_LOCAL_SIZE", "8"}}) all_here[name] = size;
  CHECK(launch_of(all_here).address == "127.0.0.1");
  CHECK(launch_of(all_here).key == "1f2e3d");
  CHECK_NOTHROW(check_can_start(launch_of(all_here), true));
  Variables unplaced = all_here;  // which of the host's eight this is nobody says
  for (const char* name : {"PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"}) unplaced.erase(name);
  CHECK_FALSE(launch_of(unplaced).is_local_rank_known);
  CHECK(launch_of(unplaced).local_ranks == 8);
  CHECK(launch_of(unplaced).address == "");
  CHECK(launch_of(kPals).address == "");
  CHECK(launch_of(kFlux).address == "");
  // Of several names of one number each is enough.
  for (const std::vector<const char*>& absent :
       {std::vector{"PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"}, {"PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"}}) {
    Variables fewer = kPals;
    for (const char* name : absent) fewer.erase(name);
    check_is(launch_of(fewer), Launcher::pmi, 5, 12, 1, 4);
  }
  for (const Variables& variables : {kPals, kFlux}) {
    const Launch told = launch_of(with(variables, {{"MASTER_ADDR", "x1000"}}));
    CHECK(told.address == "x1000");
    CHECK_NOTHROW(check_can_start(told, true));
  }
  CHECK(launch_of(kFlux).key == "f2Xyz");
  // Of all jobs that say no id of their own there would be one port.
  CHECK(launch_of(kHydra).address == "");
  CHECK(launch_of(with(kHydra, {{"SLURM_JOB_ID", "17"}})).address == "127.0.0.1");
}

TEST_CASE("launch: torchrun's own port is left to torchrun") {
  const Variables agent = with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"},
                                           {"MASTER_ADDR", "node1"},
                                           {"MASTER_PORT", "29500"},
                                           {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const Launch launch = launch_of(agent);
  CHECK(launch.address == "node1");
  CHECK(launch.port >= 15000);
  CHECK(launch.port < 25000);
  CHECK(launch.port == launch_of(with(agent, {{"RANK", "0"}})).port);
  CHECK(launch_of(with(agent, {{"MASTER_PORT", "29501"}})).port != launch.port);  // another torchrun of this host
  CHECK(launch_of(with(agent, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port == 29500);
}

TEST_CASE("launch: variables that do not fit together are named") {
  CHECK_THROWS_WITH(launch_of({{"WORLD_SIZE", "2"}}), "WORLD_SIZE is 2, but RANK says no rank");
  CHECK_THROWS_WITH(launch_of({{"WORLD_SIZE", "2"}, {"RANK", "x"}}), "WORLD_SIZE is 2, but RANK says no rank");
  CHECK_THROWS_WITH(launch_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "4"}}),
                    "OMPI_COMM_WORLD_RANK is 4, but OMPI_COMM_WORLD_SIZE is 4");
  CHECK_THROWS_WITH(launch_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "-1"}}),
                    "OMPI_COMM_WORLD_RANK is -1, but OMPI_COMM_WORLD_SIZE is 4");
  for (const char* none : {"0", "-1", "1048577", "99999999"})
    CHECK_THROWS_WITH(launch_of({{"PMI_SIZE", none}, {"PMI_RANK", "0"}}),
                      concat("PMI_SIZE is ", none, ", which is no number of ranks"));
  CHECK(launch_of({{"PMI_SIZE", "1048576"}, {"PMI_RANK", "1048575"}}).rank == 1048575);
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
  CHECK(launch_of(with(kSrun, {{"ISOBAR_JOB_KEY", "mine"}, {"ISOBAR_MEETING_KEY", "ours"}})).key == "mine");
  CHECK(!step.is_key_secret);
  for (const char* name : {"ISOBAR_JOB_KEY", "ISOBAR_MEETING_KEY"})
    CHECK(launch_of(with(kSrun, {{name, "mine"}})).is_key_secret);
  // The ports of jobs are spread out by their keys, below those that the system gives away.
  std::set<int> ports;
  for (int job = 0; job < 200; ++job) {
    ports.insert(launch_of(with(kSrun, {{"SLURM_JOB_ID", std::to_string(job)}})).port);
    CHECK(*ports.begin() >= 15000);
    CHECK(*ports.rbegin() < 25000);
  }
  CHECK(ports.size() > 190);
  // A port that the user gives is the only one; else there is a choice.
  CHECK(told.ports == 1);
  CHECK(step.ports == 3);
}

TEST_CASE("launch: Slurm's lists of nodes and tasks") {
  using Hosts = std::vector<std::string>;
  CHECK(hosts_in("node[1-2,4],login07") == Hosts{"node1", "node2", "node4", "login07"});
  CHECK(hosts_in("nid[008-011]") == Hosts{"nid008", "nid009", "nid010", "nid011"});
  CHECK(hosts_in("rack[1-2]-a") == Hosts{"rack1-a", "rack2-a"});
  CHECK(hosts_in("node[8-12]") == Hosts{"node8", "node9", "node10", "node11", "node12"});
  CHECK(hosts_in("n[9-11,100]") == Hosts{"n9", "n10", "n11", "n100"});
  CHECK(hosts_in("n[099-101]") == Hosts{"n099", "n100", "n101"});
  CHECK(hosts_in("r[1-2]n[3-4],x") == Hosts{"r1n3", "r1n4", "r2n3", "r2n4", "x"});
  CHECK(hosts_in("one") == Hosts{"one"});
  CHECK(hosts_in("").empty());
  CHECK(hosts_in("node[x-y]") == Hosts{"node[x-y]"});
  CHECK(hosts_in("node[1-99999999999]") == Hosts{"node[1-99999999999]"});
  for (const char* none : {"node[5-3]", "node[1-2", "node[1-]", "node[]", "node]1-2["})
    CHECK(hosts_in(none) == Hosts{none});
  CHECK(hosts_in("a[1-2]b[x]") == Hosts{"a[1-2]b[x]"});
  CHECK(tasks_in("2(x3),1") == std::vector<int>{2, 2, 2, 1});
  CHECK(tasks_in("4") == std::vector<int>{4});
  for (const char* none : {"", "x", "2(x", "2(x3", "0", "2(x0)", "2(x99999999)", "-1", "(x2)"})
    CHECK(tasks_in(none).empty());
}

TEST_CASE("launch: a key in a file is one that others cannot read") {
  char file[] = "/tmp/isobar_key_XXXXXX";
  const int descriptor = ::mkstemp(file);
  REQUIRE(descriptor >= 0);
  const Variables variables = with(kSrun, {{"ISOBAR_JOB_KEY_FILE", file}});
  CHECK_THROWS_WITH(launch_of(variables), ContainsSubstring("there is no key in " + std::string(file)));
  REQUIRE(::write(descriptor, "5ec2e7\n", 7) == 7);
  CHECK(launch_of(variables).key == "5ec2e7");
  CHECK(launch_of(variables).is_key_secret);
  CHECK(launch_of(with(variables, {{"ISOBAR_JOB_KEY", "mine"}})).key == "mine");
  for (const mode_t mode : {0640, 0620, 0610, 0604, 0602, 0601}) {
    ::fchmod(descriptor, mode);
    CHECK_THROWS_WITH(launch_of(variables), ContainsSubstring("others can read " + std::string(file) + ": chmod 600"));
  }
  ::fchmod(descriptor, 0700);
  CHECK(launch_of(variables).key == "5ec2e7");
  ::close(descriptor);
  ::unlink(file);
  CHECK_THROWS_WITH(launch_of(variables), concat("ISOBAR_JOB_KEY_FILE: ", file, ": No such file or directory"));
}

TEST_CASE("launch: the first and the last port are ports, and what lies beyond them is none") {
  for (const char* port : {"1", "65535"})
    CHECK(launch_of(with(kSrun, {{"MASTER_PORT", port}})).port == std::atoi(port));
  for (const char* none : {"0", "65536", "-1"})
    CHECK_THROWS_WITH(launch_of(with(kSrun, {{"MASTER_PORT", none}})),
                      concat("MASTER_PORT is ", none, ", which is no port"));
}

TEST_CASE("launch: places on a host that cannot be are brought to ones that can") {
  check_is(launch_of(with(kTorchrun, {{"LOCAL_RANK", "99"}, {"LOCAL_WORLD_SIZE", "99"}})), Launcher::torchrun, 5, 8, 7,
           8);
  check_is(launch_of(with(kTorchrun, {{"LOCAL_RANK", "-1"}, {"LOCAL_WORLD_SIZE", "0"}})), Launcher::torchrun, 5, 8, 0,
           1);
}

TEST_CASE("launch: srun's list of tasks is read at the number of this node") {
  for (const auto& [node, tasks] : std::map<std::string, int>{{"0", 3}, {"1", 2}, {"2", 1}}) {
    const Launch launch = launch_of(with(kSrun, {{"SLURM_NODEID", node}}));
    CHECK(launch.local_ranks == tasks);
    CHECK(launch.is_local_rank_known);
  }
  for (const char* none : {"3", "-1", "x"})
    CHECK(!launch_of(with(kSrun, {{"SLURM_NODEID", none}})).is_local_rank_known);
}

TEST_CASE("launch: two of torchrun's jobs on a host have different keys, and no agent's is a secret") {
  const Variables agent =
      with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}});
  const Launch launch = launch_of(agent);
  CHECK(launch.key == "torchrun.none.node1.29500");
  CHECK(!launch.is_key_secret);
  for (const auto& [name, value] :
       Variables{{"TORCHELASTIC_RUN_ID", "7"}, {"MASTER_ADDR", "node2"}, {"MASTER_PORT", "29501"}})
    CHECK(launch_of(with(agent, {{name, value}})).key != launch.key);
}

TEST_CASE("launch: a job's id is that of the launcher that has one") {
  CHECK(launch_of(with(kHydra, {{"PMI_JOBID", "hydra.5"}})).key == "hydra.5");
  CHECK(launch_of(with(kPals, {{"PMI_JOBID", "5"}})).key == "1f2e3d");
  CHECK(launch_of(with(kFlux, {{"PMI_JOBID", "5"}})).key == "f2Xyz");
  CHECK(launch_of(kHydra).key == "");
  CHECK(launch_of(with(kSrun, {{"SLURM_RESTART_COUNT", "2"}})).key == "17.3.2");
}

TEST_CASE("launch: where torchrun says no address, the step's list of nodes does, or the user must") {
  const Variables agent = with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}, {"SLURM_STEP_NODELIST", "node[07-09]"}});
  CHECK(launch_of(agent).address == "node07");
  CHECK_THROWS_WITH(check_can_start(launch_of(kTorchrun), /*by_nccl=*/true),
                    "WORLD_SIZE is 8, but where rank 0 is is not known: set MASTER_ADDR to its host");
  CHECK_THROWS_WITH(check_can_start(launch_of(kTorchrun), /*by_nccl=*/false),
                    "WORLD_SIZE is 8: the backend mpi needs mpirun or srun --mpi=pmix to start the ranks");
}

TEST_CASE("launch: launchers have the names of their commands") {
  CHECK(std::string(name_of(Launcher::open_mpi)) == "mpirun");
  CHECK(std::string(name_of(Launcher::pmi)) == "mpirun");
  CHECK(std::string(name_of(Launcher::flux)) == "flux run");
  CHECK(std::string(name_of(Launcher::slurm)) == "srun");
  CHECK(std::string(name_of(Launcher::torchrun)) == "a launcher");
  CHECK(std::string(name_of(Launcher::none)) == "no launcher");
}

TEST_CASE("launch: by this process's own variables rank 0's host is a name that can be resolved, or srun's address") {
  for (const auto& [host, address] :
       {std::pair("localhost", "localhost"), std::pair("no.such.host.invalid", "10.0.0.1")}) {
    const testing::EnvironmentVariable rank("SLURM_PROCID", "4"), size("SLURM_STEP_NUM_TASKS", "6"),
        step("SLURM_STEP_ID", "3"), nodes("SLURM_STEP_NODELIST", host), server("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"),
        master("MASTER_ADDR", nullptr), pmi("PMI_SIZE", nullptr), mpirun("OMPI_COMM_WORLD_SIZE", nullptr);
    const Launch launch = find_launch();
    CHECK(launch.rank == 4);
    CHECK(launch.address == address);
  }
}

TEST_CASE("launch: what the system lends for the address of rank 0's host is given back") {
  const testing::EnvironmentVariable rank("SLURM_PROCID", "4"), size("SLURM_STEP_NUM_TASKS", "6"),
      step("SLURM_STEP_ID", "3"), nodes("SLURM_STEP_NODELIST", "127.0.0.1"), master("MASTER_ADDR", nullptr),
      pmi("PMI_SIZE", nullptr), mpirun("OMPI_COMM_WORLD_SIZE", nullptr);
  const testing::Kept kept = testing::kept_by(200, [] { CHECK(find_launch().address == "127.0.0.1"); });
  CHECK(kept.bytes < 200 * 16);
  CHECK(kept.files == 0);
}
