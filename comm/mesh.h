// The mesh of ranks: data-, tensor-, context- (and pipeline-) parallel coordinates of every rank, and the groups of
// ranks that differ in some of them only. The order string names the axes from the fastest varying to the slowest.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace isobar {

inline constexpr std::int64_t kMaxRanks = 1 << 20;  // of a run; a larger number must be a mistake

struct MeshSizes {
  std::int64_t dp = 1, tp = 1, cp = 1, pp = 1;
  std::int64_t ranks() const { return dp * tp * cp * pp; }
};

// One rank's contiguous part of heads, hidden units or rows of patches: [begin, end).
struct Part {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const Part&, const Part&) = default;
};
// The part of place `place` of `places` if `total` is split as evenly as possible and the first places get one more: 45
// over 4 are 12, 11, 11, 11.
Part part_of(std::int64_t total, std::int64_t place, std::int64_t places);

class Mesh {
 public:
  struct Axis {
    std::string name;  // "tp", "cp", "dp", "pp"
    std::int64_t size;
    std::int64_t stride;  // between neighbouring ranks of a group
  };

  // order: axis names joined by '-', each at most once. An axis that is left out must have size 1, but "pp", which then
  // varies slowest. Throws Error for sizes below 1 and unknown or repeated names.
  Mesh(const MeshSizes& sizes, const std::string& order);

  // The mesh of a run on one device: one rank, every axis of size 1.
  static Mesh single();

  std::int64_t world_size() const;
  const std::vector<Axis>& axes() const { return axes_; }  // fastest first
  static std::int64_t coordinate(const Axis& axis, std::int64_t rank) { return rank / axis.stride % axis.size; }
  std::int64_t coordinate(const std::string& axis, std::int64_t rank) const;  // 0 for an axis that was left out
  // The ranks whose coordinates equal those of `rank` on all axes except `axes` ("dp", "dp-cp"); ascending.
  std::vector<std::int64_t> group_of(std::int64_t rank, const std::string& axes) const;
  // All such groups, ordered by their first rank.
  std::vector<std::vector<std::int64_t>> groups(const std::string& axes) const;

 private:
  std::vector<Axis> axes_;
};

// Ascending numbers as "rank 3", "ranks 0, 1, 5", "ranks 0-7, 9", "ranks 0, 4, ... 4092".
std::string to_text(std::span<const std::int64_t> ranks);

// The groups of every axis; of many groups only the first ones and the last one. Up to 32 ranks: first a table of the
// ranks' coordinates.
std::string to_text(const Mesh& mesh);

}  // namespace isobar
