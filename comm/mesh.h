// The mesh of ranks: data-, tensor- and context-parallel coordinates of every rank, and the groups of ranks that
// differ in one coordinate only. The order string names the axes from the fastest varying to the slowest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace isobar {

struct MeshSizes {
  std::int64_t dp = 1, tp = 1, cp = 1;
};

class Mesh {
 public:
  struct Axis {
    std::string name;  // "tp", "cp", "dp"
    std::int64_t size;
    std::int64_t stride;  // between neighbouring ranks of a group
  };

  // order: axis names joined by '-', each at most once; one that is left out must have size 1. "pp" may be named and
  // has size 1. Throws Error for sizes below 1 and unknown or repeated names.
  Mesh(const MeshSizes& sizes, const std::string& order);

  // The mesh of a run on one device: one rank, every axis of size 1.
  static Mesh single();

  std::int64_t world_size() const;
  const std::vector<Axis>& axes() const { return axes_; }  // fastest first
  static std::int64_t coordinate(const Axis& axis, std::int64_t rank) { return rank / axis.stride % axis.size; }
  // The groups along an axis, each in ascending order, by their first rank.
  std::vector<std::vector<std::int64_t>> groups(const Axis& axis) const;

 private:
  std::vector<Axis> axes_;
};

// A table of the ranks' coordinates followed by the groups of every axis.
std::string to_text(const Mesh& mesh);

}  // namespace isobar
