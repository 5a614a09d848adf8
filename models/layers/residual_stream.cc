#include "models/layers/residual_stream.h"

#include "comm/ops.h"
#include "kernels/common/check.h"

namespace isobar {

ResidualStream::ResidualStream(const Build& build)
    : parallel_(build.parallel),
      total_(build.tokens),
      unit_(build.token_multiple),
      zigzag_(build.zigzag),
      chunks_(total_ > 0 ? axis_of(total_).chunks(parallel_.cp.rank()) : std::vector{Part{}}) {}

ShardedAxis ResidualStream::axis_of(std::int64_t tokens) const {
  return zigzag_ ? ShardedAxis::in_zigzag(tokens, parallel_.cp.size())
                 : ShardedAxis(tokens, parallel_.cp.size(), unit_);
}

std::int64_t ResidualStream::tokens() const {
  std::int64_t count = 0;
  for (const Part& chunk : chunks_) count += chunk.size();
  return count;
}

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
  ISOBAR_CHECK(tokens() > 0 || total_ == 0, "context parallel: ", total_, " tokens in units of ", unit_,
               " are fewer units than the ", parallel_.cp.size(), " ranks");
  return total_ > 0 ? pass.samples() * tokens() : x.size(0);
}

ShardedAxis ResidualStream::axis(const Tensor& x, const Pass& pass) const {
  return axis_of(total_ > 0 ? total_ : x.size(0) / pass.samples());
}

RowWindow ResidualStream::window(const Tensor& x, const Pass& pass, bool within) const {
  const std::int64_t rows = rows_within(x, pass);
  const Part &first = chunks_.front(), &last = chunks_.back();
  return {.before = !within && parallel_.sequence ? parallel_.over_tp(rows).begin : 0,
          .tokens = rows / pass.samples(),
          .samples = pass.window(),
          .band = {first.begin, total_},
          .gap_at = chunks_.size() > 1 ? first.size() : 0,
          .gap = chunks_.size() > 1 ? last.begin - first.end : 0};
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
