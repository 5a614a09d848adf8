#include "models/layers/residual_stream.h"

#include "comm/ops.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

Part tokens_of_rank(const Build& build) {
  const Part units = build.parallel.over_cp(build.tokens / build.token_multiple);
  return {units.begin * build.token_multiple, units.end * build.token_multiple};
}

}  // namespace

ResidualStream::ResidualStream(const Build& build)
    : parallel_(build.parallel), total_(build.tokens), unit_(build.token_multiple), own_(tokens_of_rank(build)) {}

Tensor ResidualStream::begin(const Tensor& tokens, double p, Pass& pass) const {
  return drop(parallel_.sequence ? own_rows(tokens, parallel_.tp) : tokens, p, pass);
}

Tensor ResidualStream::end(const Tensor& rows, const Pass& pass) const {
  return parallel_.sequence ? all_rows(rows, rows_within(rows, pass), parallel_.tp) : rows;
}

std::int64_t ResidualStream::rows_within(const Tensor& x, const Pass& pass) const {
  const bool is_split = parallel_.cp.size() > 1 || (parallel_.sequence && parallel_.tp.size() > 1);
  ISOBAR_CHECK(total_ > 0 || !is_split,
               "a network whose samples are split over ranks must say how many tokens they have");
  ISOBAR_CHECK(own_.size() > 0 || total_ == 0, "context parallel: ", total_, " tokens in units of ", unit_,
               " are fewer units than the ", parallel_.cp.size(), " ranks");
  return total_ > 0 ? pass.samples() * tokens() : x.size(0);
}

ShardedAxis ResidualStream::axis(const Tensor& x, const Pass& pass) const {
  return {total_ > 0 ? total_ : x.size(0) / pass.samples(), parallel_.cp.size(), unit_};
}

RowWindow ResidualStream::window(const Tensor& x, const Pass& pass, bool within) const {
  const std::int64_t rows = rows_within(x, pass);
  return {.before = !within && parallel_.sequence ? parallel_.over_tp(rows).begin : 0,
          .tokens = rows / pass.samples(),
          .samples = pass.window(),
          .band = {own_.begin, total_}};
}

Tensor ResidualStream::drop(const Tensor& x, double p, Pass& pass) const {
  const DropoutKey key = pass.next_mask();
  return dropout(x, pass.rate(p), key, {.cols = x.size(1), .columns = {}, .rows = window(x, pass, false)});
}

Tensor ResidualStream::drop_path(const Tensor& x, double p, Pass& pass) const {
  const DropoutKey key = pass.next_mask();
  return isobar::drop_path(x, pass.rate(p), key, window(x, pass, false));
}

Tensor ResidualStream::drop_within(const Tensor& x, double p, Pass& pass, const Span& columns) const {
  const DropoutKey key = pass.next_mask();
  return dropout(x, pass.rate(p), key, {.cols = x.size(1), .columns = columns, .rows = window(x, pass, true)});
}

}  // namespace isobar
