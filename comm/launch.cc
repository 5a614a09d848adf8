#include "comm/launch.h"

#include <netdb.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "comm/mesh.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"
#include "kernels/common/number_text.h"

namespace isobar {
namespace {

constexpr int kFirstPort = 15000, kPorts = 10000;  // below the ephemeral ports

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const { return environment_(name).value_or(""); }
  bool has(const char* name) const { return environment_(name).has_value(); }
  std::optional<std::int64_t> number(const char* name) const {
    const std::optional<std::string> value = environment_(name);
    return value ? number_from<std::int64_t>(*value) : std::nullopt;
  }
  // The first of these variables that is a number.
  std::optional<std::int64_t> number(std::span<const char* const> names) const {
    for (const char* name : names)
      if (const std::optional<std::int64_t> value = number(name)) return value;
    return std::nullopt;
  }

 private:
  const Environment& environment_;
};

// Whether this process belongs to a step of srun. Slurm gives higher ids to the steps of batch scripts, interactive
// shells and the like.
bool is_in_numbered_step(const Reader& read) {
  constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
  const std::optional<std::int64_t> step = read.number("SLURM_STEP_ID");
  return !step || *step < kFirstSpecialStep;
}

bool is_torchrun(const Reader& read) {
  return read.has("TORCHELASTIC_RUN_ID");
}

// Whether MPICH's own mpirun, or a relative's, started this. It starts a daemon on each node, under Slurm by srun.
bool is_own_mpirun(const Reader& read) {
  return read.has("MPI_LOCALRANKID");
}

// Whether this is a task of srun, and not of another PMI launcher that runs within the step.
bool is_task_of_srun(const Reader& read) {
  const std::optional<std::int64_t> pmi_size = read.number("PMI_SIZE");
  return is_in_numbered_step(read) && (!pmi_size || pmi_size == read.number("SLURM_STEP_NUM_TASKS"));
}

// The variables of one launcher. Of several names the first that is set is used.
struct Variables {
  Launcher launcher;
  const char *rank, *size;
  std::vector<const char*> local_rank, local_size;
  bool (*are_meant)(const Reader&) = nullptr;  // if the size alone does not prove it
};

Variables only_if(bool (*are_meant)(const Reader&), Variables variables) {
  variables.are_meant = are_meant;
  return variables;
}

// The first launcher whose size is set, with its variables.
std::optional<Variables> launcher_in(const Reader& read) {
  const std::vector<const char*> pmi_local_rank{"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"};
  const std::vector<const char*> pmi_local_size{"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"};
  const auto of_mpi = [](Launcher launcher, const char* rank, const char* size, const char* local_rank,
                         const char* local_size) {
    return Variables{launcher, rank, size, {local_rank}, {local_size}};
  };
  const Variables torchrun{Launcher::torchrun, "RANK", "WORLD_SIZE", {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}};
  const Variables pmi{Launcher::pmi, "PMI_RANK", "PMI_SIZE", pmi_local_rank, pmi_local_size};
  const Variables known[] = {
      only_if(is_torchrun, torchrun),
      of_mpi(Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE"),
      of_mpi(Launcher::pmi, "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
             "MV2_COMM_WORLD_LOCAL_SIZE"),
      of_mpi(Launcher::pmi, "MVP_COMM_WORLD_RANK", "MVP_COMM_WORLD_SIZE", "MVP_COMM_WORLD_LOCAL_RANK",
             "MVP_COMM_WORLD_LOCAL_SIZE"),
      only_if(is_own_mpirun, pmi),
      {Launcher::flux, "FLUX_TASK_RANK", "FLUX_JOB_SIZE", {"FLUX_TASK_LOCAL_ID"}, {}},
      only_if(is_task_of_srun, {Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_LOCALID"}, {}}),
      pmi,
      torchrun};
  for (const Variables& variables : known)
    if (read.number(variables.size) && (variables.are_meant == nullptr || variables.are_meant(read))) return variables;
  return std::nullopt;
}

// Some launchers set a rank, but none of these sizes. To run each process as a single rank would be wrong.
void check_is_alone(const Reader& read) {
  for (const char* name : {"PMIX_RANK", "PALS_RANKID"}) {
    const std::optional<std::int64_t> rank = read.number(name);
    ISOBAR_CHECK(!rank || *rank == 0, name, " is ", *rank,
                 ", but no variable says how many ranks there are: set RANK and WORLD_SIZE");
  }
}

// Number of ranks on this host, from srun's list for all nodes.
std::optional<std::int64_t> tasks_of_this_node(const Reader& read) {
  const std::vector<int> tasks = tasks_in(read.text("SLURM_STEP_TASKS_PER_NODE"));
  const std::optional<std::int64_t> node = read.number("SLURM_NODEID");
  if (!node || *node < 0 || *node >= static_cast<std::int64_t>(tasks.size())) return std::nullopt;
  return tasks[static_cast<std::size_t>(*node)];
}

// Sets address, or why_no_address.
void find_address(const Reader& read, const Resolves& resolves, Launch& launch) {
  launch.address = read.text("MASTER_ADDR");
  if (!launch.address.empty()) return;
  const bool is_one_host = launch.is_local_rank_known && launch.local_ranks == launch.ranks;
  // Without a job id all jobs of this host would meet at one port.
  if (is_one_host && !launch.key.empty()) {
    launch.address = "127.0.0.1";
    return;
  }
  if (read.text("SLURM_DISTRIBUTION").starts_with("arbitrary")) {
    launch.why_no_address = "SLURM_DISTRIBUTION is arbitrary, so that the list of nodes does not say where rank 0 is";
    return;
  }
  // An mpirun within Slurm may order the nodes differently.
  if (launch.launcher == Launcher::slurm || launch.launcher == Launcher::torchrun) {
    const std::vector<std::string> hosts = hosts_in(read.text("SLURM_STEP_NODELIST"));
    // The host of srun itself, which is rank 0's host if there is only one.
    launch.address = !hosts.empty() && resolves(hosts.front()) ? hosts.front() : read.text("SLURM_LAUNCH_NODE_IPADDR");
  }
  if (launch.address.empty()) launch.why_no_address = "where rank 0 is is not known";
}

// The key in a file. Error if others can read the file: the key is no secret then.
std::string key_in_file(const std::string& file) {
  struct stat status = {};
  ISOBAR_CHECK(::stat(file.c_str(), &status) == 0, "ISOBAR_JOB_KEY_FILE: ", file, ": ", std::strerror(errno));
  ISOBAR_CHECK((status.st_mode & 077) == 0, "ISOBAR_JOB_KEY_FILE: others can read ", file, ": chmod 600");
  std::string key;
  std::ifstream(file) >> key;
  ISOBAR_CHECK(!key.empty(), "ISOBAR_JOB_KEY_FILE: there is no key in ", file);
  return key;
}

// A key that nobody else knows; empty if the user gives none.
std::string secret_in(const Reader& read) {
  for (const char* variable : {"ISOBAR_JOB_KEY", "ISOBAR_MEETING_KEY"})  // the older name
    if (const std::string chosen = read.text(variable); !chosen.empty()) return chosen;
  const std::string file = read.text("ISOBAR_JOB_KEY_FILE");
  return file.empty() ? "" : key_in_file(file);
}

// An id that no other job of this host has; empty if no variable gives one.
std::string public_key_in(const Reader& read) {
  // torchrun's agent has made sure that its port is unique on this host.
  if (is_torchrun(read))
    return concat("torchrun.", read.text("TORCHELASTIC_RUN_ID"), ".", read.text("MASTER_ADDR"), ".",
                  read.text("MASTER_PORT"));
  if (read.has("SLURM_JOB_ID"))
    return read.text("SLURM_JOB_ID") + "." + read.text("SLURM_STEP_ID") + "." + read.text("SLURM_RESTART_COUNT");
  for (const char* job : {"FLUX_JOB_ID", "PALS_APID", "PMI_JOBID"})
    if (const std::string id = read.text(job); !id.empty()) return id;
  return "";
}

// The first port, and the number of ports to choose from.
std::pair<int, int> ports_in(const Reader& read, const std::string& key) {
  constexpr int kChoice = 3;  // other processes may have taken some
  const std::optional<std::int64_t> port = read.number("MASTER_PORT");
  ISOBAR_CHECK(!read.has("MASTER_PORT") || port, "MASTER_PORT is '", read.text("MASTER_PORT"), "', which is no port");
  ISOBAR_CHECK(!port || (*port >= 1 && *port <= 65535), "MASTER_PORT is ", *port, ", which is no port");
  // If its agent's store is in use, torchrun itself listens at that port.
  if (port && read.text("TORCHELASTIC_USE_AGENT_STORE") != "True") return {static_cast<int>(*port), 1};
  // The port depends on the key, so that jobs on one host meet at different ports.
  return {kFirstPort + static_cast<int>(xxh64(std::as_bytes(std::span(key))) % kPorts), kChoice};
}

// The components of a heterogeneous job have separate node lists. Slurm's variables must cover the whole step.
void check_step_is_whole(const Reader& read, std::int64_t ranks) {
  const std::optional<std::int64_t> components = read.number("SLURM_HET_SIZE");
  if (!components || *components < 2) return;
  const std::vector<int> tasks = tasks_in(read.text("SLURM_STEP_TASKS_PER_NODE"));
  const auto sum = std::accumulate(tasks.begin(), tasks.end(), std::int64_t{0});
  ISOBAR_CHECK(sum == ranks, "SLURM_HET_SIZE is ", *components, ": SLURM_STEP_NUM_TASKS is ", ranks,
               ", but SLURM_STEP_TASKS_PER_NODE is '", read.text("SLURM_STEP_TASKS_PER_NODE"),
               "': this Slurm does not tell a rank where those of other components are; use one component");
}

bool can_be_resolved(const std::string& host) {
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

// The names that one item of a node list stands for: "r[1-2]n[3-4]" for four. Empty if it is no such item, or too long.
std::vector<std::string> expanded(const std::string& item) {
  const std::size_t open = item.find('['), close = item.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return {item};
  const std::vector<std::string> tails = expanded(item.substr(close + 1));
  if (tails.empty()) return {};
  std::vector<std::string> names;
  std::string_view ranges = std::string_view(item).substr(open + 1, close - open - 1);
  while (!ranges.empty()) {
    const std::string_view range = ranges.substr(0, ranges.find(','));
    ranges.remove_prefix(std::min(ranges.size(), range.size() + 1));
    const std::string_view low = range.substr(0, range.find('-'));
    const std::string_view high = low.size() == range.size() ? low : range.substr(low.size() + 1);
    const std::optional<std::int64_t> first = number_from<std::int64_t>(low), last = number_from<std::int64_t>(high);
    if (!first || !last || *last - *first > kMaxRanks / std::ssize(tails)) return {};
    for (std::int64_t number = *first; number <= *last; ++number) {
      std::string digits = std::to_string(number);
      if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
      for (const std::string& tail : tails) names.push_back(item.substr(0, open) + digits + tail);
    }
  }
  return names;
}

}  // namespace

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::open_mpi:
    case Launcher::pmi:
      return "mpirun";
    case Launcher::flux:
      return "flux run";
    case Launcher::slurm:
      return "srun";
    case Launcher::torchrun:
      return "a launcher";
    case Launcher::none:
      break;
  }
  return "no launcher";
}

Launch find_launch(const Environment& environment, const Resolves& resolves) {
  const Reader read(environment);
  Launch launch{.has_pmix = read.has("PMIX_RANK")};
  const std::optional<Variables> found = launcher_in(read);
  if (!found) {
    check_is_alone(read);
    return launch;
  }
  launch.launcher = found->launcher;
  launch.size_variable = found->size;
  const std::int64_t ranks = *read.number(found->size);
  ISOBAR_CHECK(ranks >= 1 && ranks <= kMaxRanks, found->size, " is ", ranks, ", which is no number of ranks");
  const std::optional<std::int64_t> rank = ranks == 1 ? 0 : read.number(found->rank);
  ISOBAR_CHECK(rank, found->size, " is ", ranks, ", but ", found->rank, " says no rank");
  ISOBAR_CHECK(*rank >= 0 && *rank < ranks, found->rank, " is ", *rank, ", but ", found->size, " is ", ranks);
  launch.rank = static_cast<int>(*rank);
  launch.ranks = static_cast<int>(ranks);
  const bool is_srun = launch.launcher == Launcher::slurm;
  if (is_srun) check_step_is_whole(read, ranks);
  const std::optional<std::int64_t> local_ranks = is_srun ? tasks_of_this_node(read) : read.number(found->local_size);
  const std::optional<std::int64_t> local_rank = read.number(found->local_rank);
  launch.is_local_rank_known = local_rank && local_ranks;
  launch.local_ranks = static_cast<int>(std::clamp<std::int64_t>(local_ranks.value_or(1), 1, ranks));
  launch.local_rank = static_cast<int>(std::clamp<std::int64_t>(local_rank.value_or(0), 0, ranks - 1));
  launch.key = secret_in(read);
  launch.is_key_secret = !launch.key.empty();
  if (!launch.is_key_secret) launch.key = public_key_in(read);
  std::tie(launch.port, launch.ports) = ports_in(read, launch.key);
  find_address(read, resolves, launch);
  return launch;
}

Launch find_launch() {
  const auto environment = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  };
  return find_launch(environment, can_be_resolved);
}

std::vector<int> tasks_in(const std::string& tasks_per_node) {
  std::vector<int> tasks;
  std::string_view rest = tasks_per_node;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t open = item.find("(x");
    const std::optional<std::int64_t> count = number_from<std::int64_t>(item.substr(0, open));
    std::optional<std::int64_t> times = 1;
    if (open != std::string_view::npos)
      times =
          item.ends_with(')') ? number_from<std::int64_t>(item.substr(open + 2, item.size() - open - 3)) : std::nullopt;
    if (!count || !times || *count < 1 || *count > kMaxRanks || *times < 1 || *times > kMaxRanks) return {};
    tasks.insert(tasks.end(), static_cast<std::size_t>(*times), static_cast<int>(*count));
  }
  return tasks;
}

std::vector<std::string> hosts_in(const std::string& node_list) {
  std::vector<std::string> hosts;
  std::size_t at = 0;
  while (at < node_list.size()) {
    std::size_t end = at;
    for (int depth = 0; end < node_list.size() && (node_list[end] != ',' || depth > 0); ++end)
      depth += node_list[end] == '[' ? 1 : node_list[end] == ']' ? -1 : 0;
    const std::vector<std::string> names = expanded(node_list.substr(at, end - at));
    if (names.empty()) return {node_list};
    hosts.insert(hosts.end(), names.begin(), names.end());
    at = end + 1;
  }
  return hosts;
}

}  // namespace isobar
