// add_leading_channels, join_planes, replace_points: what the input of the next step of a forecast is made of.
#include <span>
#include <utility>
#include <vector>

#include "engine/field_ops.h"
#include "engine/ops/common.h"
#include "kernels/replace.h"

namespace isobar {
namespace {

// Where channels [first, first + count) lie in fields [B, channels, LAT, LON], a run a sample.
struct ChannelRuns {
  std::int64_t batch, pixels, channels, first, count;

  ChannelRuns(const Shape& fields, std::int64_t first, std::int64_t count)
      : batch(fields[0]), pixels(fields[2] * fields[3]), channels(fields[1]), first(first), count(count) {}
  StridedBlocks runs() const { return {first * pixels, channels * pixels}; }
  std::int64_t length() const { return count * pixels; }
  Tensor of_sample(const Tensor& fields, std::int64_t sample) const {
    return fields.slice(sample * channels * pixels + first * pixels, {length()});
  }
};

// to = a + b, run by run. `to` may be a.
void add_runs(const Tensor& a, const ChannelRuns& of_a, const Tensor& b, const ChannelRuns& of_b, const Tensor& to,
              const ChannelRuns& of_to) {
  for (std::int64_t sample = 0; sample < of_to.batch; ++sample)
    ISOBAR_RUN(to.device(), add,
               {.n = of_to.length(),
                .a_dtype = a.dtype(),
                .b_dtype = b.dtype(),
                .y_dtype = to.dtype(),
                .a = of_a.of_sample(a, sample).data(),
                .b = of_b.of_sample(b, sample).data(),
                .y = of_to.of_sample(to, sample).data()},
               current_stream());
}

// Channels of dy are the gradient of as many channels of x, whose other channels get 0.
void give_channels(Gradients& gradients, const Target& x, std::int64_t first, const Tensor& dy,
                   const ChannelRuns& of_dy) {
  const Gradients::Slot dx = gradients.slot(x);
  if (!dx) return;
  const ChannelRuns of_x(x.shape, first, of_dy.count);
  if (dx.mode == Grad::accumulate) return add_runs(dx.tensor, of_x, dy, of_dy, dx.tensor, of_x);
  if (of_x.count < of_x.channels)
    ISOBAR_RUN(x.device, fill, {.n = dx.tensor.numel(), .dtype = dx.tensor.dtype(), .value = 0, .y = dx.tensor.data()},
               current_stream());
  copy_strided(dx.tensor, of_x.runs(), dy.to(dx.tensor.dtype()), of_dy.runs(), of_x.batch, of_x.length());
}

void run_replace(const Tensor& x, const Tensor& with, const Tensor& flags, const Tensor& y) {
  ISOBAR_RUN(x.device(), replace,
             {.groups = x.numel() / flags.numel(),
              .n = flags.numel(),
              .dtype = x.dtype(),
              .with_row = with.defined() && with.numel() == flags.numel(),
              .x = x.data(),
              .with = with.defined() ? with.data() : nullptr,
              .flags = flags.data_as<std::int32_t>(),
              .y = y.data()},
             current_stream());
}

}  // namespace

Tensor add_leading_channels(const Tensor& x, const Tensor& fields, std::int64_t channels) {
  check_operands("add_leading_channels", {{"the input", x, 4}, {"the tensor of fields", fields, 4}});
  ISOBAR_CHECK(x.size(0) >= 1, "add_leading_channels: ", to_string(x.shape()), " holds no sample");
  const std::int64_t added = channels == 0 ? x.size(1) : channels;
  ISOBAR_CHECK(channels >= 0 && added <= x.size(1) && fields.size(0) == x.size(0) && fields.size(1) >= added &&
                   fields.size(2) == x.size(2) && fields.size(3) == x.size(3),
               "add_leading_channels: ", to_string(fields.shape()), " has no leading channels ", to_string(x.shape()));
  const ChannelRuns sums(x.shape(), 0, added), terms(fields.shape(), 0, added);
  const ChannelRuns others(x.shape(), added, x.size(1) - added);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  add_runs(x.detach(), sums, fields.detach(), terms, y, sums);
  if (others.count > 0) copy_strided(y, others.runs(), x.detach(), others.runs(), others.batch, others.length());
  Tape::record("add_leading_channels", {&x, &fields}, {}, {&y},
               [x = Target(x), fields = Target(fields), sums](Gradients& gradients, const std::vector<Tensor>& dy) {
                 if (fields.tracked()) give_channels(gradients, fields, 0, dy[0], sums);
                 gradients.give(x, dy[0]);
               });
  return y;
}

Tensor join_planes(const std::vector<Planes>& parts) {
  ISOBAR_CHECK(!parts.empty(), "join_planes: there are no tensors");
  const Tensor& first = parts[0].fields;
  std::int64_t channels = 0;
  for (const auto& [fields, begin, count] : parts) {
    check_operands("join_planes", {{"the first tensor", first, 4}, {"the next one", fields, 4}});
    ISOBAR_CHECK(fields.size(0) == first.size(0) && fields.size(2) == first.size(2) &&
                     fields.size(3) == first.size(3) && fields.dtype() == first.dtype(),
                 "join_planes: ", to_string(first.shape()), " of ", name_of(first.dtype()), " and ",
                 to_string(fields.shape()), " of ", name_of(fields.dtype()), " differ in more than their channels");
    ISOBAR_CHECK(begin >= 0 && count >= 1 && begin <= fields.size(1) - count,
                 "join_planes: ", to_string(fields.shape()), " has no channels ", begin, " to ", begin + count - 1);
    channels += count;
  }
  Tensor y = Tensor::empty({first.size(0), channels, first.size(2), first.size(3)}, first.dtype(), first.device());
  std::vector<const Tensor*> inputs;
  std::vector<std::pair<Target, std::int64_t>> targets;  // and its first channel
  std::vector<ChannelRuns> places;                       // in y
  std::int64_t at = 0;
  for (const auto& [fields, begin, count] : parts) {
    const ChannelRuns from(fields.shape(), begin, count), to(y.shape(), at, count);
    copy_strided(y, to.runs(), fields.detach(), from.runs(), to.batch, to.length());
    at += count;
    inputs.push_back(&fields);
    targets.emplace_back(fields, begin);
    places.push_back(to);
  }
  Tensor* const output = &y;
  Tape::record("join_planes", inputs, {}, std::span(&output, 1),
               [targets, places](Gradients& gradients, const std::vector<Tensor>& dy) {
                 for (std::size_t part = 0; part < targets.size(); ++part)
                   give_channels(gradients, targets[part].first, targets[part].second, dy[0], places[part]);
               });
  return y;
}

Tensor replace_points(const Tensor& x, const Tensor& with, const Tensor& flags) {
  check_operands("replace_points", {{"the input", x, 4}, {"the tensor of values", with}, {"the flags", flags, 3}});
  const Shape fields(x.shape().begin() + 1, x.shape().end());
  ISOBAR_CHECK(flags.shape() == fields && flags.dtype() == DType::i32 && flags.numel() > 0, "replace_points: flags ",
               to_string(flags.shape()), " of ", name_of(flags.dtype()), " are not for fields ", to_string(x.shape()));
  ISOBAR_CHECK((with.shape() == x.shape() || with.shape() == fields) && with.dtype() == x.dtype(),
               "replace_points: values ", to_string(with.shape()), " of ", name_of(with.dtype()), " are not for ",
               to_string(x.shape()), " of ", name_of(x.dtype()));
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  run_replace(x, with, flags, y);
  Tape::record("replace_points", {&x}, {flags}, {&y},
               [x = Target(x), flags](Gradients& gradients, const std::vector<Tensor>& dy) {
                 run_replace(dy[0], {}, flags, dy[0]);
                 gradients.give(x, dy[0]);
               });
  return y;
}

}  // namespace isobar
