#include "data/fields/windows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/common/check.h"

namespace isobar {

Windows::Windows(const FieldSeries& series, WindowOptions options) : series_(series), options_(std::move(options)) {
  if (options_.channels.empty()) {
    options_.channels.resize(static_cast<std::size_t>(series.channels()));
    std::iota(options_.channels.begin(), options_.channels.end(), 0);
  }
  target_ = options_.channels;
  target_.insert(target_.end(), options_.diagnostics.begin(), options_.diagnostics.end());
  for (const ConstantField& constant : options_.constants)
    ISOBAR_CHECK(std::ssize(constant.values) == series.height() * series.width(), "the constant ", constant.name,
                 " has ", constant.values.size(), " values for a grid of ", series.height(), " x ", series.width());
}

std::int64_t Windows::input_planes() const {
  return std::ssize(options_.channels) * (1 + options_.history) + given_planes() + std::ssize(options_.constants);
}

std::int64_t Windows::given_planes() const {
  return std::ssize(options_.forcings) + (options_.computed ? std::ssize(options_.computed->names()) : 0);
}

bool Windows::has_inputs(std::int64_t step) const {
  const std::int64_t oldest = step - options_.history * series_.dt();
  return oldest >= series_.range()[0] && series_.has_sums(oldest) &&
         (options_.history == 0 || series_.regular(oldest, step));
}

bool Windows::has_window(std::int64_t first, std::int64_t steps) const {
  if (!has_inputs(first)) return false;
  for (std::int64_t k = 0; k < steps; ++k)
    if (!series_.has_pair(first + k * series_.dt())) return false;
  return true;
}

void Windows::read_input(std::int64_t step, RowBand rows, float* out) const {
  const std::int64_t pixels = rows.count * series_.width();
  for (std::int64_t back = 0; back <= options_.history; ++back) {
    series_.read_channels(step - back * series_.dt(), options_.channels, rows, out);
    out += std::ssize(options_.channels) * pixels;
  }
  read_given(step, rows, out);
  out += given_planes() * pixels;
  for (const ConstantField& constant : options_.constants)
    out = std::copy_n(constant.values.begin() + rows.first * series_.width(), pixels, out);
}

void Windows::read_given(std::int64_t step, RowBand rows, float* out) const {
  series_.read_channels(step, options_.forcings, rows, out);
  if (!options_.computed) return;
  const std::optional<double> hours = series_.hours_since_1970(step);
  ISOBAR_CHECK(hours, series_.file_name_of(step), " has no 'time', which computed channels need");
  options_.computed->write(*hours, rows.first, rows.count,
                           out + std::ssize(options_.forcings) * rows.count * series_.width());
}

void Windows::read_diagnostics(std::int64_t step, RowBand rows, float* out) const {
  series_.read_channels(step, options_.diagnostics, rows, out);
}

void Windows::read_target(std::int64_t step, RowBand rows, float* out) const {
  series_.read_channels(step, target_, rows, out);
}

}  // namespace isobar
