#include "data/fields/chosen_planes.h"

#include <algorithm>
#include <utility>

#include "data/fields/constants.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// Of a computed plane; "1": a number without a unit.
const char* computed_unit(const std::string& name) {
  return name == "toa_radiation" ? "J m**-2" : "1";
}

std::string file_of_place(const std::string& place) {
  return place.substr(0, place.rfind(':'));
}

}  // namespace

ChosenPlanes::Choice ChosenPlanes::parse(const std::string& channel) {
  const std::size_t equals = channel.find('=');
  const bool is_constant = equals != std::string::npos;
  Choice choice{channel.substr(0, equals), is_constant ? channel.substr(equals + 1) : ""};
  ISOBAR_CHECK(!choice.name.empty() && is_constant != choice.place.empty(), "the channel '", channel,
               "' is no name, and no constant, NAME=FILE:VARIABLE");
  return choice;
}

bool ChosenPlanes::Choice::is_field() const {
  const std::vector<std::string>& computed = computed_channel_names();
  return place.empty() && std::ranges::find(computed, name) == computed.end();
}

ChosenPlanes::ChosenPlanes(std::vector<std::string> sources, const std::vector<std::string>& channels, Holes holes) {
  for (const std::string& channel : channels) choices_.push_back(parse(channel));
  check_choices();
  open_series(std::move(sources), holes);
  units_.resize(choices_.size());
  std::int64_t fields = 0;
  for (std::size_t c = 0; c < choices_.size(); ++c) {
    names_.push_back(choices_[c].name);
    if (choices_[c].is_field())
      add_field(c, fields++);
    else if (choices_[c].place.empty())
      add_computed(c);
    else
      add_constant(c);
  }
}

void ChosenPlanes::check_choices() const {
  for (auto choice = choices_.begin(); choice != choices_.end(); ++choice)
    ISOBAR_CHECK(
        std::find_if(choices_.begin(), choice, [&](const Choice& c) { return c.name == choice->name; }) == choice,
        "the channel ", choice->name, " is named twice");
  ISOBAR_CHECK(std::ranges::any_of(choices_, &Choice::is_field),
               "no channel is one of the files: they give grid and times, so at least one is needed");
}

void ChosenPlanes::open_series(std::vector<std::string> sources, Holes holes) {
  std::vector<std::string> names;
  for (const Choice& choice : choices_)
    if (choice.is_field()) names.push_back(choice.name);
  FieldSeriesOptions options{.paths = std::move(sources),
                             .channels = std::move(names),
                             .choose = true,
                             .other_names = computed_channel_names()};
  if (holes == Holes::kept) options.missing = options.channels;
  series_.emplace(options);
}

void ChosenPlanes::add_field(std::size_t c, std::int64_t in_series) {
  if (!series_->labels().units.empty()) units_[c] = series_->labels().units[static_cast<std::size_t>(in_series)];
  if (fields_.empty() || fields_.back().first + fields_.back().in_series.size() != c) fields_.push_back({c, {}});
  fields_.back().in_series.push_back(in_series);
}

void ChosenPlanes::add_computed(std::size_t c) {
  units_[c] = computed_unit(names_[c]);
  computed_.push_back({c, ComputedPlanes({names_[c]}, {series_->latitudes(), series_->longitudes()},
                                         series_->labels().step_hours, RadiationUnit::joule)});
}

void ChosenPlanes::add_constant(std::size_t c) {
  ConstantField field = std::move(read_constants({{names_[c], choices_[c].place}}, *series_).front());
  units_[c] = field.units;
  constant_files_.push_back(file_of_place(choices_[c].place));
  constants_.push_back({c, std::move(field.values)});
}

void ChosenPlanes::read(std::int64_t step, float* out) const {
  const std::int64_t pixels = series_->height() * series_->width();
  const auto field = [&](std::size_t channel) { return out + static_cast<std::int64_t>(channel) * pixels; };
  for (const Fields& fields : fields_)
    series_->read_channels(step, fields.in_series, series_->all_rows(), field(fields.first));
  for (const Computed& computed : computed_)
    computed.plane.write(series_->hours_since_1970(step).value(), 0, series_->height(), field(computed.channel));
  for (const Constant& constant : constants_) std::ranges::copy(constant.values, field(constant.channel));
}

}  // namespace isobar
