#include "comm/mesh.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {

namespace {

std::vector<std::string> split_at_dashes(const std::string& order) {
  std::vector<std::string> names;
  std::istringstream in(order);
  for (std::string name; std::getline(in, name, '-');) names.push_back(name);
  return names;
}

}  // namespace

Part part_of(std::int64_t total, std::int64_t place, std::int64_t places) {
  ISOBAR_CHECK(total >= 0 && place >= 0 && place < places, "part ", place, " of ", places, " of ", total);
  const std::int64_t each = total / places, more = total % places;
  const std::int64_t begin = place * each + std::min(place, more);
  return {begin, begin + each + (place < more ? 1 : 0)};
}

Mesh::Mesh(const MeshSizes& sizes, const std::string& order) {
  std::vector<Axis> known{{"tp", sizes.tp, 1}, {"cp", sizes.cp, 1}, {"dp", sizes.dp, 1}, {"pp", sizes.pp, 1}};
  for (const Axis& axis : known) {
    ISOBAR_CHECK(axis.size >= 1, "the ", axis.name, " size must be at least 1, not ", axis.size);
  }
  std::int64_t stride = 1;
  std::vector<std::string> names = split_at_dashes(order);
  if (sizes.pp > 1 && std::ranges::find(names, "pp") == names.end()) names.emplace_back("pp");
  for (const std::string& name : names) {
    const auto axis = std::find_if(known.begin(), known.end(), [&](const Axis& a) { return a.name == name; });
    ISOBAR_CHECK(axis != known.end(), "order ", order, ": '", name,
                 "' is not one of tp, cp, dp, pp, or is named twice");
    ISOBAR_CHECK(axis->size <= kMaxRanks / stride, "more than ", kMaxRanks, " ranks");
    axes_.push_back({name, axis->size, stride});
    stride *= axis->size;
    known.erase(axis);
  }
  for (const Axis& axis : known) {
    ISOBAR_CHECK(axis.size == 1, "order ", order, " leaves out ", axis.name, ", whose size is ", axis.size);
  }
}

Mesh Mesh::single() {
  return {{}, "tp-cp-dp"};
}

std::int64_t Mesh::world_size() const {
  return axes_.empty() ? 1 : axes_.back().stride * axes_.back().size;
}

std::int64_t Mesh::coordinate(const std::string& axis, std::int64_t rank) const {
  const auto found = std::ranges::find(axes_, axis, &Axis::name);
  return found == axes_.end() ? 0 : coordinate(*found, rank);
}

std::vector<std::int64_t> Mesh::group_of(std::int64_t rank, const std::string& axes) const {
  std::vector<std::int64_t> group{rank};
  for (const std::string& name : split_at_dashes(axes)) {
    const auto axis = std::ranges::find(axes_, name, &Axis::name);
    if (axis == axes_.end()) continue;
    std::vector<std::int64_t> wider;
    for (const std::int64_t member : group) {
      const std::int64_t first = member - coordinate(*axis, member) * axis->stride;
      for (std::int64_t i = 0; i < axis->size; ++i) wider.push_back(first + i * axis->stride);
    }
    group = std::move(wider);
  }
  std::ranges::sort(group);
  return group;
}

std::vector<std::vector<std::int64_t>> Mesh::groups(const std::string& axes) const {
  std::vector<std::vector<std::int64_t>> groups;
  std::vector<bool> seen(static_cast<std::size_t>(world_size()));
  for (std::int64_t rank = 0; rank < world_size(); ++rank) {
    if (seen[static_cast<std::size_t>(rank)]) continue;
    for (const std::int64_t member : groups.emplace_back(group_of(rank, axes)))
      seen[static_cast<std::size_t>(member)] = true;
  }
  return groups;
}

namespace {

constexpr std::int64_t kMaxInTable = 32;
constexpr std::size_t kMaxGroups = 8, kShownGroups = 3;  // with more groups only that many are shown, and the last one

// Length of the longest run with equal steps that begins at place `first`.
std::size_t steps_from(std::span<const std::int64_t> ranks, std::size_t first) {
  std::size_t end = first + 1;
  while (end < ranks.size() && ranks[end] - ranks[end - 1] == ranks[first + 1] - ranks[first]) ++end;
  return end - first;
}

std::string list_of(std::span<const std::int64_t> ranks, const char* separator) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    if (i > 0) text += separator;
    const std::size_t run = steps_from(ranks, i);
    const bool is_dense = run >= 3 && ranks[i + 1] == ranks[i] + 1, is_long = run >= 5;
    text += std::to_string(ranks[i]);
    if (is_dense) text += "-" + std::to_string(ranks[i + run - 1]);
    if (is_long && !is_dense)
      text += separator + std::to_string(ranks[i + 1]) + separator + "... " + std::to_string(ranks[i + run - 1]);
    i += is_dense || is_long ? run : 1;
  }
  return text;
}

void add_table(const Mesh& mesh, std::ostream& out) {
  out << "  rank";
  for (const auto& axis : mesh.axes()) out << std::setw(6) << axis.name;
  out << '\n';
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    out << std::setw(6) << rank;
    for (const auto& axis : mesh.axes()) out << std::setw(6) << Mesh::coordinate(axis, rank);
    out << '\n';
  }
}

}  // namespace

std::string to_text(std::span<const std::int64_t> ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + list_of(ranks, ", ");
}

std::string to_text(const Mesh& mesh) {
  std::ostringstream out;
  if (mesh.world_size() <= kMaxInTable) add_table(mesh, out);
  for (const auto& axis : mesh.axes()) {
    const auto groups = mesh.groups(axis.name);
    const bool is_cut = groups.size() > kMaxGroups;
    out << axis.name;
    if (is_cut) out << ": " << groups.size();
    out << " groups";
    if (is_cut) out << " of " << axis.size;
    out << ':';
    for (std::size_t i = 0; i < groups.size(); ++i) {
      if (is_cut && i == kShownGroups) {
        out << " ...";
        i = groups.size() - 1;
      }
      out << " {" << list_of(groups[i], ",") << '}';
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace isobar
