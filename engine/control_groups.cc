#include "engine/control_groups.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

namespace isobar {
namespace {

// The number in a file of the system; none if there is no such file or it holds "max".
std::optional<std::size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::size_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

}  // namespace

std::size_t control_group_limit(const std::string& root) {
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/user.slice/job", "9:memory:/job"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers != "memory") continue;
    const std::string tree = root + (controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    const std::string file = controllers.empty() ? "/memory.max" : "/memory.limit_in_bytes";
    std::string group = line.substr(second + 1);
    for (;;) {
      if (const auto number = number_in(tree + group + file)) limit = std::min(limit, *number);
      const std::size_t parent = group.rfind('/');
      if (parent == std::string::npos || group == "/") break;
      group.erase(parent);
    }
  }
  return limit;
}

}  // namespace isobar
