#include "data/forecasts/climatology_reader.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include "data/fields/field_axes.h"
#include "data/fields/variable_fields.h"
#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"

namespace isobar {

ClimatologyReader::~ClimatologyReader() = default;

ClimatologyReader::ClimatologyReader(const std::string& path) {
  const std::shared_ptr<const StoredArrays> arrays = open_stored_arrays(path);
  OpenedPlanes opened = open_variable_planes(arrays, FieldPlan::climatology, nullptr);
  const FieldFacts& facts = opened.fields.facts;
  channels_ = facts.channel_names;
  units_ = facts.units;
  units_.resize(channels_.size());
  days_ = opened.outer.values.values;
  hours_ = opened.inner.values.values;
  numbers_ = opened.outer.name == kCalendarDay ? DayNumbers::calendar : DayNumbers::dayofyear;
  grid_ = {.height = facts.shape[2],
           .width = facts.shape[3],
           .latitudes = facts.latitudes,
           .longitudes = facts.longitudes,
           .source = path};
  if (const ArrayInfo* const axis = arrays->find(opened.outer.name)) {
    const std::string first = text_attribute(*axis, kFirstTime), last = text_attribute(*axis, kLastTime);
    if (!first.empty() && !last.empty())
      times_ = {parse_date(first, path + ": " + kFirstTime).begin, parse_date(last, path + ": " + kLastTime).begin};
  }
  reader_ = std::move(opened.fields.reader);
}

void ClimatologyReader::read(const StepTime& time, std::size_t channel, float* out) const {
  const ClimatologySlot slot = climatology_slot(time, numbers_);
  const auto day = std::ranges::find(days_, static_cast<double>(slot.day + 1));
  ISOBAR_CHECK(day != days_.end(), path(), " has no climatology of the day of ", time.iso(), ": number ", slot.day + 1);
  auto hour = hours_.begin();
  if (!hours_.empty()) {
    hour = std::ranges::find(hours_, static_cast<double>(slot.minute) / 60);
    ISOBAR_CHECK(hour != hours_.end(), path(), " has no climatology of the hour of ", time.iso());
  }
  const auto inner = static_cast<std::int64_t>(std::max<std::size_t>(hours_.size(), 1));
  const std::int64_t step = (day - days_.begin()) * inner + (hour - hours_.begin());
  const Plane plane{static_cast<std::int64_t>(channel), out, MissingPoints::kept};
  reader_->read(step, std::span(&plane, 1), {0, grid_.height, grid_.width});
  ISOBAR_CHECK(std::any_of(out, out + grid_.points(), [](float value) { return !std::isnan(value); }), path(),
               " has no value of ", channels_[channel], " for the day and hour of ", time.iso());
}

}  // namespace isobar
