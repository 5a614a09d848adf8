// Who am I? What a launcher (mpirun, srun, torchrun) tells a process through environment variables: its rank, how many
// there are, and where the first one is.
//
// The first of these that is there counts. The order matters, because launchers are started within each other:
//
//   torchrun                   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, and TORCHELASTIC_RUN_ID
//   Open MPI's mpirun          OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   MVAPICH's mpirun_rsh       MV2_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; version 3: MVP_COMM_WORLD_...
//   MPICH's, Intel's mpirun    PMI_RANK, PMI_SIZE, and MPI_LOCALRANKID, MPI_LOCALNRANKS
//   flux run                   FLUX_TASK_RANK, FLUX_JOB_SIZE, FLUX_TASK_LOCAL_ID
//   srun, with any --mpi       SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE
//   PALS, others with PMI      PMI_RANK, PMI_SIZE, and PMI_LOCAL_RANK, _SIZE or PALS_LOCAL_RANKID, PALS_LOCAL_SIZE
//   torchrun's like            RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
//   none                       one rank
//
// Traps: a batch script's own shell has SLURM_PROCID and SLURM_NTASKS too, although one process runs there; mpirun
// within an allocation gives SLURM_PROCID=0 to all its processes, or that of the daemon which srun has started on each
// node; srun --mpi=pmi2 sets PMI_RANK and PMI_SIZE beside Slurm's own, and no local rank with them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace isobar {

// pmi: whoever starts the processes of an MPI, Open MPI apart.
enum class Launcher : std::uint8_t { none, open_mpi, pmi, flux, slurm, torchrun };

struct Launch {
  Launcher launcher = Launcher::none;
  int rank = 0, ranks = 1;
  int local_rank = 0, local_ranks = 1;  // among those of this host
  bool is_local_rank_told = false;      // else it is not known; nor is local_ranks
  bool has_pmix = false;                // srun --mpi=pmix: Open MPI can start
  std::string size_variable = {};       // that says how many there are: "WORLD_SIZE"; empty with Launcher::none
  std::string address = {};             // of rank 0; empty: not known
  std::string why_no_address = {};      // then, for a sentence
  int port = 0, ports = 1;              // that rank 0 listens at: the first of these from `port` on that is free
  std::string key = {};                 // of the job: what has another one is a stranger
  bool is_key_secret = false;           // else who sees the job can tell it
};

// The value of an environment variable; none where it is not set.
using Environment = std::function<std::optional<std::string>(const char* name)>;
// Whether a host's name can be resolved.
using Resolves = std::function<bool(const std::string& host)>;

// Of this process. Throws Error naming the variable where they do not fit together.
Launch find_launch();
// The same for any variables: tests plant them.
Launch find_launch(const Environment& environment, const Resolves& resolves);

// "mpirun", "srun"; for messages.
const char* name_of(Launcher launcher);

// "node[1-2,4],login07" is node1, node2, node4, login07. What is no such list is one host of that name.
std::vector<std::string> hosts_in(const std::string& node_list);
// Tasks of each node: "2(x3),1" is 2, 2, 2, 1; empty for what is no such list.
std::vector<int> tasks_in(const std::string& tasks_per_node);

}  // namespace isobar
