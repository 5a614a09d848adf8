#include "comm/imagined.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {
namespace {

class ImaginedBackend : public Backend {
 public:
  ImaginedBackend(std::shared_ptr<ImaginedWorld> world, int rank, int size)
      : world_(std::move(world)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool has_failed() const override { return false; }
  bool is_imagined() const override { return true; }
  bool prefers_equal_parts() const override { return world_->like == DeviceKind::cuda; }

  void run(const Call& call, const std::string& what) override {
    if (!holds_values(call.device)) return;
    ISOBAR_CHECK(call.verb == Verb::all_reduce && call.dtype == DType::fp64 && call.device == Device{}, what, ", ",
                 to_text(call), ": these ranks are imagined, and only shapes can be exchanged");
    const std::span values(static_cast<double*>(call.receive), static_cast<std::size_t>(call.sent()));
    for (double& value : values) value = call.reduce == Reduce::max ? largest(value) : value * size_;
  }

  std::unique_ptr<Backend> split(int, int) override {
    throw_error("imagined ranks form no groups but those of a layout");
  }

 private:
  double largest(double own) {
    if (asked_ == world_->largest.size()) world_->largest.push_back(own);
    double& largest = world_->largest[asked_++];
    return largest = std::max(largest, own);
  }

  std::shared_ptr<ImaginedWorld> world_;
  int rank_, size_;
  std::size_t asked_ = 0;  // numbers by max
};

}  // namespace

std::unique_ptr<Backend> make_imagined_backend(std::shared_ptr<ImaginedWorld> world, int rank, int size) {
  return std::make_unique<ImaginedBackend>(std::move(world), rank, size);
}

}  // namespace isobar
