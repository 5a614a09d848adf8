// What a launcher (mpirun, srun, torchrun) passes to a process in environment variables: its rank, the number of ranks,
// and the address of rank 0.
//
// The first launcher of this list whose variables are set is used. The order matters, because launchers run inside each
// other:
//
//   torchrun                   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, and TORCHELASTIC_RUN_ID
//   Open MPI's mpirun          OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   MVAPICH's mpirun_rsh       MV2_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; version 3: MVP_COMM_WORLD_...
//   MPICH's, Intel's mpirun    PMI_RANK, PMI_SIZE, and MPI_LOCALRANKID, MPI_LOCALNRANKS
//   flux run                   FLUX_TASK_RANK, FLUX_JOB_SIZE, FLUX_TASK_LOCAL_ID
//   srun, with any --mpi       SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE
//   PALS, others with PMI      PMI_RANK, PMI_SIZE, and PMI_LOCAL_RANK, _SIZE or PALS_LOCAL_RANKID, PALS_LOCAL_SIZE
//   others like torchrun       RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   none                       one rank
//
// Traps. The shell of a batch script is one process, but also has SLURM_PROCID and SLURM_NTASKS. mpirun within an
// allocation passes SLURM_PROCID=0 to all its processes, or that of the daemon that srun started on each node. srun
// --mpi=pmi2 sets PMI_RANK and PMI_SIZE in addition to Slurm's own, but no local rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace isobar {

// pmi: a launcher of any MPI except Open MPI.
enum class Launcher : std::uint8_t { none, open_mpi, pmi, flux, slurm, torchrun };

struct Launch {
  Launcher launcher = Launcher::none;
  int rank = 0, ranks = 1;
  int local_rank = 0, local_ranks = 1;  // among those of this host
  bool is_local_rank_known = false;     // false: local_rank and local_ranks are not known
  bool has_pmix = false;                // srun --mpi=pmix: Open MPI can start
  std::string size_variable = {};       // the variable that `ranks` is from: "WORLD_SIZE"; empty for Launcher::none
  std::string address = {};             // of rank 0; empty: not known
  std::string why_no_address = {};      // the reason, for a message
  int port = 0, ports = 1;              // rank 0 listens at the first free one of `ports` ports from `port` on
  std::string key = {};                 // of the job; processes with another key are rejected
  bool is_key_secret = false;           // false: anyone who can see the job can derive the key
};

// The value of an environment variable; none if it is unset.
using Environment = std::function<std::optional<std::string>(const char* name)>;
// Whether a host's name can be resolved.
using Resolves = std::function<bool(const std::string& host)>;

// Of this process. Throws Error that names the variable if the variables contradict each other.
Launch find_launch();
// The same for given variables, in tests.
Launch find_launch(const Environment& environment, const Resolves& resolves);

// "mpirun", "srun"; for messages.
const char* name_of(Launcher launcher);

// "node[1-2,4],login07" is node1, node2, node4, login07. Any other text is one host of that name.
std::vector<std::string> hosts_in(const std::string& node_list);
// Tasks of each node: "2(x3),1" is 2, 2, 2, 1; empty if the text is no such list.
std::vector<int> tasks_in(const std::string& tasks_per_node);

}  // namespace isobar
