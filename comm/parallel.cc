#include "comm/parallel.h"

#include <algorithm>
#include <memory>

#include "kernels/common/check.h"
#include "kernels/common/math.h"

namespace isobar {
namespace {

// A place in a group that nobody has formed.
class Place : public Backend {
 public:
  Place(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void run(const Call& call, const std::string& what) override {
    throw_error(what, ", ", to_text(call), ": these ranks are imagined");
  }
  std::unique_ptr<Backend> split(int, int) override { throw_error("imagined ranks form no groups"); }
  bool has_failed() const override { return false; }

 private:
  int rank_, size_;
};

Communicator place_in(const Mesh& mesh, std::int64_t rank, const std::string& axes) {
  const std::vector<std::int64_t> group = mesh.group_of(rank, axes);
  if (group.size() == 1) return {};
  const auto place = std::ranges::find(group, rank) - group.begin();
  return Communicator(std::make_unique<Place>(static_cast<int>(place), static_cast<int>(group.size())));
}

// group: makes the one along these axes.
template <class Group>
void form_groups(Parallel& parallel, const Group& group) {
  parallel.dp = group("dp");
  parallel.tp = group("tp");
  parallel.cp = group("cp");
  parallel.tokens = group("dp-cp");
  parallel.model = group("tp-cp");
}

}  // namespace

Parallel Parallel::start(const Communicator& world, const MeshSizes& sizes, const std::string& order) {
  Parallel parallel{.mesh = Mesh(sizes, order), .world = world};
  ISOBAR_CHECK(parallel.mesh.world_size() == world.size(), "dp ", sizes.dp, " x tp ", sizes.tp, " x cp ", sizes.cp,
               " are ", parallel.mesh.world_size(), " ranks, and there are ", world.size());
  const int rank = world.rank();
  const auto group = [&](const std::string& axes) {
    return world.split(static_cast<int>(parallel.mesh.group_of(rank, axes).front()), rank, axes);
  };
  form_groups(parallel, group);
  return parallel;
}

Parallel Parallel::imagined(std::int64_t rank, const MeshSizes& sizes, const std::string& order) {
  Parallel parallel{.mesh = Mesh(sizes, order)};
  const auto place = [&](const char* axes) { return place_in(parallel.mesh, rank, axes); };
  parallel.world = place("tp-cp-dp");
  form_groups(parallel, place);
  return parallel;
}

Part Parallel::over_tp(std::int64_t total, std::int64_t unit) const {
  const Part units = part_of(ceil_div(total, unit), tp.rank(), tp.size());
  return {std::min(units.begin * unit, total), std::min(units.end * unit, total)};
}

const Parallel& Parallel::alone() {
  static const Parallel single;
  return single;
}

}  // namespace isobar
