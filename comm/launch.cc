#include "comm/launch.h"

#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <span>
#include <string_view>

#include "comm/mesh.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

constexpr int kFirstPort = 15000, kPorts = 10000;  // below those that systems hand out

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// The variables of one launcher.
struct Variables {
  Launcher launcher;
  const char *rank, *size, *local_rank, *local_size;
};

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const { return environment_(name).value_or(""); }
  bool has(const char* name) const { return environment_(name).has_value(); }
  std::optional<std::int64_t> number(const char* name) const {
    const std::optional<std::string> value = environment_(name);
    return value ? whole_number(*value) : std::nullopt;
  }

 private:
  const Environment& environment_;
};

// Whether this is a task of srun. Steps have numbers; those of a batch script, an interactive shell and the like lie
// above these.
bool is_in_numbered_step(const Reader& read) {
  constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
  const std::optional<std::int64_t> step = read.number("SLURM_STEP_ID");
  return !step || *step < kFirstSpecialStep;
}

// The launcher whose size is told, with the variables that tell it.
std::optional<Variables> launcher_in(const Reader& read) {
  const Variables known[] = {{Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                             {Launcher::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
                             {Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
                             {Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}};
  for (const Variables& variables : known) {
    if (!read.number(variables.size)) continue;
    if (variables.launcher != Launcher::slurm || is_in_numbered_step(read)) return variables;
  }
  return std::nullopt;
}

// Ranks of this host, as srun says it for all nodes.
std::optional<std::int64_t> tasks_of_this_node(const Reader& read) {
  const std::vector<int> tasks = tasks_in(read.text("SLURM_STEP_TASKS_PER_NODE"));
  const std::optional<std::int64_t> node = read.number("SLURM_NODEID");
  if (!node || *node < 0 || *node >= static_cast<std::int64_t>(tasks.size())) return std::nullopt;
  return tasks[static_cast<std::size_t>(*node)];
}

std::string address_in(const Reader& read, const Resolves& resolves) {
  if (const std::string chosen = read.text("MASTER_ADDR"); !chosen.empty()) return chosen;
  const std::vector<std::string> hosts = hosts_in(read.text("SLURM_STEP_NODELIST"));
  if (!hosts.empty() && resolves(hosts.front())) return hosts.front();
  // Where srun runs, which is rank 0's host if that is the only one.
  return read.text("SLURM_LAUNCH_NODE_IPADDR");
}

std::string key_in(const Reader& read) {
  if (const std::string chosen = read.text("ISOBAR_MEETING_KEY"); !chosen.empty()) return chosen;
  if (!read.has("SLURM_JOB_ID")) return "";
  return read.text("SLURM_JOB_ID") + "." + read.text("SLURM_STEP_ID") + "." + read.text("SLURM_RESTART_COUNT");
}

int port_in(const Reader& read, const std::string& key) {
  if (const std::optional<std::int64_t> port = read.number("MASTER_PORT")) {
    ISOBAR_CHECK(*port >= 1 && *port <= 65535, "MASTER_PORT is ", *port, ", which is no port");
    return static_cast<int>(*port);
  }
  ISOBAR_CHECK(!read.has("MASTER_PORT"), "MASTER_PORT is '", read.text("MASTER_PORT"), "', which is no port");
  // Jobs on one host meet at ports of their own.
  return kFirstPort + static_cast<int>(xxh64(std::as_bytes(std::span(key))) % kPorts);
}

bool can_be_resolved(const std::string& host) {
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

}  // namespace

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::open_mpi:
    case Launcher::pmi:
      return "mpirun";
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
  if (!found) return launch;
  const auto& [launcher, rank_name, size_name, local_rank_name, local_size_name] = *found;
  launch.launcher = launcher;
  launch.size_variable = size_name;
  const std::int64_t ranks = *read.number(size_name);
  ISOBAR_CHECK(ranks >= 1 && ranks <= kMostRanks, size_name, " is ", ranks, ", which is no number of ranks");
  const std::optional<std::int64_t> rank = ranks == 1 ? 0 : read.number(rank_name);
  ISOBAR_CHECK(rank, size_name, " is ", ranks, ", but ", rank_name, " says no rank");
  ISOBAR_CHECK(*rank >= 0 && *rank < ranks, rank_name, " is ", *rank, ", but ", size_name, " is ", ranks);
  launch.rank = static_cast<int>(*rank);
  launch.ranks = static_cast<int>(ranks);
  std::optional<std::int64_t> local_ranks =
      launcher == Launcher::slurm ? tasks_of_this_node(read) : read.number(local_size_name);
  std::optional<std::int64_t> local_rank = read.number(local_rank_name);
  if (launcher == Launcher::pmi && !local_rank) {  // srun --mpi=pmi2
    local_rank = read.number("SLURM_LOCALID");
    local_ranks = tasks_of_this_node(read);
  }
  launch.local_ranks = static_cast<int>(std::clamp<std::int64_t>(local_ranks.value_or(1), 1, ranks));
  launch.local_rank = static_cast<int>(std::clamp<std::int64_t>(local_rank.value_or(0), 0, ranks - 1));
  launch.address = address_in(read, resolves);
  launch.key = key_in(read);
  launch.port = port_in(read, launch.key);
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
    const std::optional<std::int64_t> count = whole_number(item.substr(0, open));
    std::optional<std::int64_t> times = 1;
    if (open != std::string_view::npos)
      times = item.ends_with(')') ? whole_number(item.substr(open + 2, item.size() - open - 3)) : std::nullopt;
    if (!count || !times || *count < 1 || *count > kMostRanks || *times < 1 || *times > kMostRanks) return {};
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
    const std::string item = node_list.substr(at, end - at);
    at = end + 1;
    const std::size_t open = item.find('['), close = item.find(']');
    if (open == std::string::npos || close == std::string::npos || close < open) {
      hosts.push_back(item);
      continue;
    }
    const std::string prefix = item.substr(0, open), suffix = item.substr(close + 1);
    std::string_view ranges = std::string_view(item).substr(open + 1, close - open - 1);
    while (!ranges.empty()) {
      const std::string_view range = ranges.substr(0, ranges.find(','));
      ranges.remove_prefix(std::min(ranges.size(), range.size() + 1));
      const std::string_view low = range.substr(0, range.find('-'));
      const std::string_view high = low.size() == range.size() ? low : range.substr(low.size() + 1);
      const std::optional<std::int64_t> first = whole_number(low), last = whole_number(high);
      if (!first || !last || *last - *first > kMostRanks) return {node_list};
      for (std::int64_t number = *first; number <= *last; ++number) {
        std::string digits = std::to_string(number);
        if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
        hosts.push_back(prefix + digits + suffix);
      }
    }
  }
  return hosts;
}

}  // namespace isobar
