#include "comm/mesh.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "kernels/common/check.h"

namespace isobar {

namespace {

constexpr std::int64_t kMostRanks = 1 << 20;

std::vector<std::string> split_at_dashes(const std::string& order) {
  std::vector<std::string> names;
  std::istringstream in(order);
  for (std::string name; std::getline(in, name, '-');) names.push_back(name);
  return names;
}

}  // namespace

Mesh::Mesh(const MeshSizes& sizes, const std::string& order) {
  std::vector<Axis> known{{"tp", sizes.tp, 1}, {"cp", sizes.cp, 1}, {"dp", sizes.dp, 1}, {"pp", 1, 1}};
  for (const Axis& axis : known) {
    ISOBAR_CHECK(axis.size >= 1, "the ", axis.name, " size must be at least 1, not ", axis.size);
  }
  std::int64_t stride = 1;
  for (const std::string& name : split_at_dashes(order)) {
    const auto axis = std::find_if(known.begin(), known.end(), [&](const Axis& a) { return a.name == name; });
    ISOBAR_CHECK(axis != known.end(), "order ", order, ": '", name, "' is not one of tp, cp, dp, or is named twice");
    ISOBAR_CHECK(axis->size <= kMostRanks / stride, "more than ", kMostRanks, " ranks");
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

std::vector<std::vector<std::int64_t>> Mesh::groups(const Axis& axis) const {
  std::vector<std::vector<std::int64_t>> groups;
  for (std::int64_t first = 0; first < world_size(); ++first) {
    if (coordinate(axis, first) != 0) continue;
    std::vector<std::int64_t>& group = groups.emplace_back();
    for (std::int64_t i = 0; i < axis.size; ++i) group.push_back(first + i * axis.stride);
  }
  return groups;
}

std::string to_text(const Mesh& mesh) {
  std::ostringstream out;
  out << "  rank";
  for (const auto& axis : mesh.axes()) out << std::setw(6) << axis.name;
  out << '\n';
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) {
    out << std::setw(6) << rank;
    for (const auto& axis : mesh.axes()) out << std::setw(6) << Mesh::coordinate(axis, rank);
    out << '\n';
  }
  for (const auto& axis : mesh.axes()) {
    out << axis.name << " groups:";
    for (const auto& group : mesh.groups(axis)) {
      const char* separator = " {";
      for (const std::int64_t rank : group) {
        out << separator << rank;
        separator = ",";
      }
      out << '}';
    }
    out << '\n';
  }
  return out.str();
}

}  // namespace isobar
