#include "data/files/box_reader.h"

#include <algorithm>
#include <cstddef>

#include "data/files/npy.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// "[0, 4) x [60, 124)"
std::string box_text(std::span<const std::int64_t> start, std::span<const std::int64_t> count) {
  std::string text;
  for (std::size_t d = 0; d < start.size(); ++d)
    text += concat(d == 0 ? "[" : " x [", start[d], ", ", start[d] + count[d], ")");
  return text;
}

}  // namespace

void BoxReader::read(std::span<const std::int64_t> start, std::span<const std::int64_t> count, float* out) {
  check_and_pull({start, count, DType::fp32, out});
}

void BoxReader::read(std::span<const std::int64_t> start, std::span<const std::int64_t> count, double* out) {
  check_and_pull({start, count, DType::fp64, out});
}

void BoxReader::check_and_pull(const Request& request) {
  const auto& [start, count, dtype, out] = request;
  ISOBAR_CHECK(start.size() == shape_.size() && count.size() == shape_.size(), where_, " has shape ",
               shape_text(shape_), "; a box of ", start.size(), " axes cannot be read from it");
  for (std::size_t d = 0; d < shape_.size(); ++d)
    ISOBAR_CHECK(start[d] >= 0 && count[d] >= 0 && start[d] <= shape_[d] && count[d] <= shape_[d] - start[d], where_,
                 " has shape ", shape_text(shape_), "; the box ", box_text(start, count), " is not within it");
  if (std::ranges::find(count, 0) == count.end()) pull(request);
}

}  // namespace isobar
