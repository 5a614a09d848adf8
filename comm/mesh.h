// Which rank stands where: data-, tensor- and context-parallel coordinates of every rank, and the groups of ranks that
// differ in one coordinate only. The order string names the axes from the fastest varying to the slowest.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace isobar {

struct RankMapSizes {
  std::int64_t dp = 1, tp = 1, cp = 1;
};

class RankMap {
 public:
  struct Axis {
    std::string name;  // "tp", "cp", "dp"
    std::int64_t size;
    std::int64_t stride;  // between neighbouring ranks of a group
  };

  // order: axis names joined by '-', each at most once; one that is left out must have size 1. "pp" may be named and
  // has size 1. Throws Error for sizes below 1 and unknown or repeated names.
  RankMap(const RankMapSizes& sizes, const std::string& order);

  std::int64_t world_size() const;
  const std::vector<Axis>& axes() const { return axes_; }  // fastest first
  static std::int64_t coordinate(const Axis& axis, std::int64_t rank) { return rank / axis.stride % axis.size; }
  // The groups along an axis, each in ascending order, by their first rank.
  std::vector<std::vector<std::int64_t>> groups(const Axis& axis) const;

 private:
  std::vector<Axis> axes_;
};

// A table of the ranks' coordinates followed by the groups of every axis.
std::string to_text(const RankMap& map);

}  // namespace isobar
