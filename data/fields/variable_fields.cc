#include "data/fields/variable_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "data/fields/calendar.h"
#include "data/fields/channels.h"
#include "data/fields/experiments.h"
#include "data/fields/field_axes.h"
#include "data/fields/packing.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "kernels/common/comma_list.h"

namespace isobar {
namespace {

constexpr std::size_t kNoAxis = std::numeric_limits<std::size_t>::max();

// The two axes whose numbers together are a step. Data may be a forecast too, of one start or one lead time.
struct AxesOfSteps {
  FieldAxis outer, inner;
};
constexpr AxesOfSteps axes_of(FieldPlan plan) {
  if (plan == FieldPlan::climatology) return {FieldAxis::day, FieldAxis::hour};
  return {FieldAxis::time, FieldAxis::lead};
}

// A variable on latitudes and longitudes. Axes are numbered in the stored order.
struct GridVariable {
  const ArrayInfo* array = nullptr;
  std::size_t outer = kNoAxis, inner = kNoAxis, level = kNoAxis, latitude = kNoAxis, longitude = kNoAxis,
              experiment = kNoAxis;
  bool on_model_levels = false;
  bool runs_northwards = false;  // the first row is the southernmost
  Packing packing;
  std::vector<std::string> channels = {};    // [levels], or one
  std::vector<Experiment> experiments = {};  // entries of the axis expver, final ones first; empty: no such axis

  std::int64_t extent(std::size_t axis) const { return axis == kNoAxis ? 1 : array->shape[axis]; }
  std::int64_t steps() const { return extent(outer) * extent(inner); }
};

// The coordinate of an axis: the array of one dimension that has the name of the axis.
const ArrayInfo* coordinate_of(const StoredArrays& arrays, const std::string& axis) {
  const ArrayInfo* const found = arrays.find(axis);
  return found != nullptr && found->shape.size() == 1 && found->has_numbers ? found : nullptr;
}

std::vector<double> all_numbers(const StoredArrays& arrays, const ArrayInfo& array) {
  std::vector<double> values(static_cast<std::size_t>(array.shape.empty() ? 1 : array.shape.front()));
  const std::vector<std::int64_t> start(array.shape.size(), 0);
  arrays.open(array.name)->read(start, array.shape, values.data());
  for (const double value : values)
    ISOBAR_CHECK(std::isfinite(value), arrays.path(), ": '", array.name, "' holds ",
                 std::isnan(value) ? "NaN" : "an infinity");
  return values;
}

// Describes the variables of one file.
class Describer {
 public:
  explicit Describer(const StoredArrays& arrays, FieldPlan plan = FieldPlan::steps) : arrays_(arrays), plan_(plan) {}

  // None if the array is no field; `reason` says why a field cannot be a channel.
  std::optional<GridVariable> describe(const ArrayInfo& array, std::string& reason) const;
  std::vector<std::string> channels_of(const GridVariable& variable) const;
  std::vector<double> axis_values(const GridVariable& variable, std::size_t axis) const;
  std::string where(const ArrayInfo& array) const { return concat(arrays_.path(), ": '", array.name, "'"); }

 private:
  bool is_own_coordinate(const ArrayInfo& array) const {
    return array.dimensions.size() == 1 && array.dimensions.front() == array.name;
  }

  std::size_t* place_of(GridVariable& variable, FieldAxis kind) const;
  std::string why_no_sequence(const GridVariable& variable) const;

  const StoredArrays& arrays_;
  const FieldPlan plan_;
};

// Where a variable keeps the number of an axis; null for axes that fields do not have.
std::size_t* Describer::place_of(GridVariable& variable, FieldAxis kind) const {
  const AxesOfSteps steps = axes_of(plan_);
  if (kind == steps.outer) return &variable.outer;
  if (kind == steps.inner) return &variable.inner;
  switch (kind) {
    case FieldAxis::latitude:
      return &variable.latitude;
    case FieldAxis::longitude:
      return &variable.longitude;
    case FieldAxis::experiment:
      return &variable.experiment;
    case FieldAxis::pressure_level:
    case FieldAxis::model_level:
      return &variable.level;
    default:
      return nullptr;
  }
}

std::optional<GridVariable> Describer::describe(const ArrayInfo& array, std::string& reason) const {
  if (!array.has_numbers || array.dimensions.size() != array.shape.size() || is_own_coordinate(array))
    return std::nullopt;
  GridVariable variable{.array = &array, .packing = {}};
  for (std::size_t axis = 0; axis < array.dimensions.size(); ++axis) {
    const std::string& name = array.dimensions[axis];
    const FieldAxis kind = field_axis(name, coordinate_of(arrays_, name));
    std::size_t* const place = place_of(variable, kind);
    if (place == nullptr ? array.shape[axis] != 1 : *place != kNoAxis)
      reason = concat(array.name, " has ", array.shape[axis], " entries on its axis '", name, "'");
    if (place != nullptr) *place = axis;
    if (place == &variable.level && coordinate_of(arrays_, name) == nullptr)
      reason = concat(array.name, " has an axis '", name, "' whose levels the file does not tell");
    if (kind == FieldAxis::model_level) variable.on_model_levels = true;
  }
  if (variable.latitude == kNoAxis || variable.longitude == kNoAxis) return std::nullopt;
  if (reason.empty() && plan_ == FieldPlan::steps) reason = why_no_sequence(variable);
  if (!reason.empty()) return std::nullopt;
  const std::vector<double> latitudes = axis_values(variable, variable.latitude);
  variable.runs_northwards = latitudes.size() > 1 && latitudes.front() < latitudes.back();
  variable.packing = packing_of(array, where(array));
  if (variable.experiment != kNoAxis)
    variable.experiments = in_order_of_trust(experiment_numbers(arrays_), variable.extent(variable.experiment));
  variable.channels = channels_of(variable);
  return variable;
}

// Why forecasts are no sequence of steps; empty if they are, or if the variable is no forecast.
std::string Describer::why_no_sequence(const GridVariable& variable) const {
  if (variable.extent(variable.inner) <= 1) return "";
  const std::string& name = variable.array->dimensions[variable.inner];
  const std::string entries =
      concat(variable.array->name, " has ", variable.extent(variable.inner), " entries on its axis '", name, "'");
  if (variable.extent(variable.outer) > 1)
    return concat(entries, " and ", variable.extent(variable.outer), " on '",
                  variable.array->dimensions[variable.outer], "': only one start, or one lead, is a sequence of steps");
  const ArrayInfo* const coordinate = coordinate_of(arrays_, name);
  if (coordinate == nullptr || !hours_per_unit(text_attribute(*coordinate, "units")))
    return entries + ", whose times it does not tell";
  return "";
}

std::vector<double> Describer::axis_values(const GridVariable& variable, std::size_t axis) const {
  if (axis == kNoAxis) return {};
  const ArrayInfo* const coordinate = coordinate_of(arrays_, variable.array->dimensions[axis]);
  if (coordinate == nullptr) return {};
  ISOBAR_CHECK(coordinate->shape.front() == variable.array->shape[axis], where(*coordinate), " has ",
               coordinate->shape.front(), " values, but ", variable.array->name, " has ", variable.array->shape[axis],
               " on this axis");
  return all_numbers(arrays_, *coordinate);
}

std::vector<std::string> Describer::channels_of(const GridVariable& variable) const {
  const std::string name = short_variable_name(variable.array->name);
  if (variable.level == kNoAxis) return {name};
  std::vector<double> levels = axis_values(variable, variable.level);
  const std::string& axis = variable.array->dimensions[variable.level];
  if (!variable.on_model_levels) {
    const ArrayInfo& coordinate = *coordinate_of(arrays_, axis);
    for (double& level : levels) level *= hectopascals_per_unit(coordinate, where(coordinate));
  }
  std::vector<std::string> channels;
  for (const double level : levels) channels.push_back(name + (variable.on_model_levels ? "_ml" : "") + concat(level));
  return channels;
}

// The names of all channels: variables whose short names are equal go by their own names.
void keep_names_apart(std::vector<GridVariable>& variables) {
  const auto count = [&](const std::string& name) {
    std::ptrdiff_t found = 0;
    for (const GridVariable& variable : variables) found += std::ranges::count(variable.channels, name);
    return found;
  };
  std::vector<GridVariable*> doubtful;
  for (GridVariable& variable : variables)
    if (std::ranges::any_of(variable.channels, [&](const std::string& name) { return count(name) > 1; }))
      doubtful.push_back(&variable);
  for (GridVariable* variable : doubtful) {
    const std::string short_name = short_variable_name(variable->array->name);
    for (std::string& channel : variable->channels) channel = variable->array->name + channel.substr(short_name.size());
  }
}

// Reads planes of one variable.
class VariableReader {
 public:
  VariableReader(std::shared_ptr<const StoredArrays> arrays, const GridVariable& variable, CacheBudget budget)
      : arrays_(std::move(arrays)), variable_(variable), budget_(std::move(budget)) {}

  // The field of a level at a step, rows [crop.row, crop.row + crop.height) counted from the north. Chunks of
  // a Zarr store that do not exist are missing points if these are kept and its fill value is NaN; they are an Error
  // else, unless they hold its fill value.
  void read(std::int64_t step, std::int64_t level, FieldCrop crop, MissingPoints missing, float* to) {
    BoxReader& reader = opened(missing);
    const bool lies_as_wanted = !variable_.runs_northwards && variable_.latitude < variable_.longitude;
    if (lies_as_wanted && variable_.packing.is_plain() && variable_.extent(variable_.experiment) == 1) {
      const Box box = box_of(step, level, 0, crop);
      reader.read(box.start, box.count, to);
      mark_missing(variable_.packing, {to, static_cast<std::size_t>(crop.height * crop.width)});
      return;
    }
    if (variable_.experiments.empty()) read_part(reader, box_of(step, level, 0, crop), crop, false, to);
    bool fills = false;
    for (const Experiment& experiment : variable_.experiments)
      read_part(reader, box_of(step, level, experiment.entry, crop), crop, std::exchange(fills, true), to);
  }

  // Whether the first level of a step has preliminary values and no final one.
  bool is_preliminary_at(std::int64_t step) {
    const std::int64_t rows = variable_.extent(variable_.latitude), columns = variable_.extent(variable_.longitude);
    bool has_preliminary = false;
    for (const FieldCrop crop : {FieldCrop{0, 1, columns}, FieldCrop{0, rows, columns}})
      for (const Experiment& experiment : variable_.experiments) {
        if (!has_values(step, experiment.entry, crop)) continue;
        if (!experiment.is_preliminary) return false;
        has_preliminary = true;
      }
    return has_preliminary;
  }

  std::string name() { return opened(MissingPoints::refused).name(); }

 private:
  struct Box {
    std::vector<std::int64_t> start, count;
  };

  // Where a level of a step lies in the array.
  Box box_of(std::int64_t step, std::int64_t level, std::int64_t experiment, FieldCrop crop) const {
    const std::size_t axes = variable_.array->shape.size();
    Box box{std::vector<std::int64_t>(axes, 0), std::vector<std::int64_t>(axes, 1)};
    const auto set = [&](std::size_t axis, std::int64_t first, std::int64_t length) {
      if (axis != kNoAxis) box.start[axis] = first, box.count[axis] = length;
    };
    const std::int64_t rows = variable_.extent(variable_.latitude);
    set(variable_.outer, step / variable_.extent(variable_.inner), 1);
    set(variable_.inner, step % variable_.extent(variable_.inner), 1);
    set(variable_.level, level, 1);
    set(variable_.experiment, experiment, 1);
    set(variable_.latitude, variable_.runs_northwards ? rows - crop.row - crop.height : crop.row, crop.height);
    set(variable_.longitude, 0, crop.width);
    return box;
  }

  bool has_values(std::int64_t step, std::int64_t experiment, FieldCrop crop) {
    std::vector<float> values(static_cast<std::size_t>(crop.height * crop.width));
    read_part(opened(MissingPoints::kept), box_of(step, 0, experiment, crop), crop, false, values.data());
    return std::ranges::any_of(values, [](float value) { return !std::isnan(value); });
  }

  // fills: only where `to` has no value yet.
  void read_part(BoxReader& reader, const Box& box, FieldCrop crop, bool fills, float* to) {
    thread_local std::vector<double> stored;
    thread_local std::vector<float> line;
    stored.resize(static_cast<std::size_t>(crop.height * crop.width));
    reader.read(box.start, box.count, stored.data());
    const bool rows_first = variable_.latitude < variable_.longitude;
    const std::int64_t lines = rows_first ? crop.height : crop.width, length = rows_first ? crop.width : crop.height;
    line.resize(static_cast<std::size_t>(length));
    for (std::int64_t i = 0; i < lines; ++i) {
      unpack(variable_.packing, std::span(stored).subspan(static_cast<std::size_t>(i * length), line.size()), 1,
             line.data());
      for (std::int64_t j = 0; j < length; ++j) {
        const std::int64_t stored_row = rows_first ? i : j, column = rows_first ? j : i;
        const std::int64_t row = variable_.runs_northwards ? crop.height - 1 - stored_row : stored_row;
        float& value = to[row * crop.width + column];
        if (!fills || std::isnan(value)) value = line[static_cast<std::size_t>(j)];
      }
    }
  }

  // Opened when it is needed: only variables that have a role are.
  BoxReader& opened(MissingPoints missing) {
    constexpr std::array kMeanings{zarr::MissingChunk::error, zarr::MissingChunk::nan_or_error,
                                   zarr::MissingChunk::fill_value};
    const auto policy = static_cast<std::size_t>(missing);
    const std::lock_guard lock(opening_);
    std::unique_ptr<BoxReader>& reader = readers_[policy];
    if (!reader)
      reader = arrays_->open(variable_.array->name, {.budget = budget_, .rows = "steps", .values = "fields"},
                             kMeanings[policy]);
    return *reader;
  }

  std::shared_ptr<const StoredArrays> arrays_;
  GridVariable variable_;
  CacheBudget budget_;
  std::mutex opening_;
  std::array<std::unique_ptr<BoxReader>, 3> readers_;  // by MissingPoints
};

class VariableFields : public FieldReader {
 public:
  VariableFields(const std::shared_ptr<const StoredArrays>& arrays, const std::vector<GridVariable>& variables,
                 const CacheBudget& budget)
      : arrays_(arrays),
        steps_(variables.front().steps()),
        are_of_an_axis_(std::ranges::any_of(
            variables, [](const GridVariable& variable) { return !variable.experiments.empty(); })) {
    for (const GridVariable& variable : variables) {
      readers_.push_back(std::make_unique<VariableReader>(arrays, variable, budget));
      for (std::size_t level = 0; level < variable.channels.size(); ++level)
        channels_.push_back({readers_.back().get(), static_cast<std::int64_t>(level)});
    }
  }

  void read(std::int64_t step, std::span<const Plane> planes, FieldCrop crop) override {
    for (const Plane& plane : planes) {
      const Channel& channel = channels_[static_cast<std::size_t>(plane.channel)];
      channel.reader->read(step, channel.level, crop, plane.missing, plane.to);
    }
  }

  // Of the first variable. All are opened, so that one that cannot be read is an Error before its first step is.
  std::string name() const override {
    for (const auto& reader : readers_) static_cast<void>(reader->name());
    return channels_.front().reader->name();
  }

  PreliminaryData preliminary() override {
    if (arrays_->find(kExpver) == nullptr) return {};
    const std::vector<double> numbers = experiment_numbers(*arrays_);
    PreliminaryData data{.is_unread = numbers.empty()};
    for (std::int64_t step = 0; step < steps_ && !numbers.empty(); ++step)
      data.steps.push_back(is_preliminary_at(step, numbers) ? 1 : 0);
    return data;
  }

 private:
  // numbers: of the steps, or one for all of them; else those of an axis.
  bool is_preliminary_at(std::int64_t step, const std::vector<double>& numbers) const {
    if (are_of_an_axis_)
      return std::ranges::any_of(readers_, [&](const auto& reader) { return reader->is_preliminary_at(step); });
    if (std::ssize(numbers) == steps_) return is_preliminary(numbers[static_cast<std::size_t>(step)]);
    return numbers.size() == 1 && is_preliminary(numbers.front());
  }

  struct Channel {
    VariableReader* reader;
    std::int64_t level;
  };

  std::shared_ptr<const StoredArrays> arrays_;
  std::int64_t steps_;
  bool are_of_an_axis_;                                   // the file's numbers of expver
  std::vector<std::unique_ptr<VariableReader>> readers_;  // [variables]
  std::vector<Channel> channels_;
};

// Error if a variable is not on the steps and the grid of the first one.
void check_same_axes(const StoredArrays& arrays, const GridVariable& first, const GridVariable& variable) {
  for (const auto& [axis, other] :
       {std::pair(variable.outer, first.outer), std::pair(variable.inner, first.inner),
        std::pair(variable.latitude, first.latitude), std::pair(variable.longitude, first.longitude)}) {
    if (axis == kNoAxis && other == kNoAxis) continue;
    ISOBAR_CHECK(axis != kNoAxis && other != kNoAxis, arrays.path(), ": of ", variable.array->name, " and ",
                 first.array->name, " one has the axis '",
                 axis != kNoAxis ? variable.array->dimensions[axis] : first.array->dimensions[other],
                 "', and one has not");
    const std::string &name = variable.array->dimensions[axis], &other_name = first.array->dimensions[other];
    ISOBAR_CHECK(name == other_name && variable.array->shape[axis] == first.array->shape[other], arrays.path(), ": ",
                 variable.array->name, " lies on the axis '", name, "' of ", variable.array->shape[axis], ", but ",
                 first.array->name, " on '", other_name, "' of ", first.array->shape[other]);
  }
}

TimeFacts coordinate_facts(const StoredArrays& arrays, const ArrayInfo& coordinate) {
  const NumberFormat format = coordinate.format.value_or(NumberFormat{.bytes = sizeof(double)});
  return {all_numbers(arrays, coordinate), text_attribute(coordinate, "units"), text_attribute(coordinate, "calendar"),
          format.kind == NumberFormat::Kind::floating && format.bytes == sizeof(float)};
}

// Of a forecast: replaces the times of its starts by the times that it is for.
void add_leads(const StoredArrays& arrays, const GridVariable& variable, TimeFacts& times) {
  if (variable.inner == kNoAxis) return;
  const ArrayInfo* const coordinate = coordinate_of(arrays, variable.array->dimensions[variable.inner]);
  const std::optional<double> hours =
      coordinate != nullptr ? hours_per_unit(text_attribute(*coordinate, "units")) : std::nullopt;
  if (!hours) return;
  const double hours_per_time = TimeUnits(times.units, times.calendar, arrays.path()).hours_per_unit();
  const std::vector<double> starts = std::exchange(times.values, {});
  for (const double start : starts)
    for (const double lead : Describer(arrays).axis_values(variable, variable.inner))
      times.values.push_back(start + lead * *hours / hours_per_time);
}

std::optional<TimeFacts> times_of(const StoredArrays& arrays, const GridVariable& variable) {
  const ArrayInfo* const coordinate = coordinate_of(arrays, variable.array->dimensions[variable.outer]);
  if (coordinate == nullptr) return std::nullopt;
  if (text_attribute(*coordinate, "units").find(" since ") == std::string::npos) return std::nullopt;
  static_cast<void>(Describer(arrays).axis_values(variable, variable.outer));  // checks its length
  TimeFacts times = coordinate_facts(arrays, *coordinate);
  add_leads(arrays, variable, times);
  return times;
}

// Of an axis of a variable; if it has no such axis, of a scalar of that kind.
FieldCoordinate coordinate_along(const StoredArrays& arrays, const GridVariable& variable, std::size_t axis,
                                 FieldAxis kind) {
  if (axis != kNoAxis) {
    const std::string& name = variable.array->dimensions[axis];
    const ArrayInfo* const coordinate = coordinate_of(arrays, name);
    ISOBAR_CHECK(coordinate != nullptr, arrays.path(), ": the axis '", name, "' of ", variable.array->name,
                 " has no coordinate that tells its values");
    static_cast<void>(Describer(arrays).axis_values(variable, axis));  // checks its length
    return {name, coordinate_facts(arrays, *coordinate)};
  }
  for (const ArrayInfo& array : arrays.arrays())
    if (array.shape.empty() && array.has_numbers && array.name != "valid_time" &&
        field_axis(array.name, &array) == kind)
      return {array.name, coordinate_facts(arrays, array)};
  return {};
}

FieldFacts facts_of(const StoredArrays& arrays, const std::vector<GridVariable>& variables) {
  const GridVariable& first = variables.front();
  const Describer describer(arrays);
  FieldFacts facts;
  for (const GridVariable& variable : variables) {
    check_same_axes(arrays, first, variable);
    facts.channel_names.insert(facts.channel_names.end(), variable.channels.begin(), variable.channels.end());
    facts.units.insert(facts.units.end(), variable.channels.size(), text_attribute(*variable.array, "units"));
  }
  facts.shape = {first.steps(), std::ssize(facts.channel_names), first.extent(first.latitude),
                 first.extent(first.longitude)};
  facts.latitudes = describer.axis_values(first, first.latitude);
  facts.longitudes = describer.axis_values(first, first.longitude);
  if (first.runs_northwards) std::ranges::reverse(facts.latitudes);
  facts.has_expver = arrays.find(kExpver) != nullptr;
  return facts;
}

}  // namespace

namespace {

// Whether a variable has a step: forecasts may be of one start, or of one lead time.
bool has_steps(const GridVariable& variable, FieldPlan plan) {
  return variable.outer != kNoAxis || (plan == FieldPlan::forecasts && variable.inner != kNoAxis);
}

std::vector<GridVariable> variables_of(const StoredArrays& arrays, FieldPlan plan, std::vector<std::string>& left_out) {
  std::vector<GridVariable> variables;
  const Describer describer(arrays, plan);
  for (const ArrayInfo& array : arrays.arrays()) {
    std::string reason;
    std::optional<GridVariable> variable = describer.describe(array, reason);
    if (variable && !has_steps(*variable, plan)) reason = array.name + " does not change with time";
    if (!reason.empty())
      left_out.push_back(reason);
    else if (variable)
      variables.push_back(std::move(*variable));
  }
  const std::string held = comma_list(arrays.arrays(), &ArrayInfo::name);
  ISOBAR_CHECK(!variables.empty(), arrays.path(), " has no variable on ",
               plan == FieldPlan::climatology ? "days (dayofyear, calendar_day)" : "time",
               ", latitude and longitude; it holds ", held.empty() ? "nothing" : held,
               left_out.empty() ? "" : "; not these: ", comma_list(left_out));
  keep_names_apart(variables);
  return variables;
}

OpenedFields open_all(const std::shared_ptr<const StoredArrays>& arrays, const std::vector<GridVariable>& variables,
                      std::vector<std::string> left_out, const CacheBudget& budget) {
  FieldFacts facts = facts_of(*arrays, variables);
  check_extents(facts.shape, arrays->path());
  check_latitudes(facts.latitudes, arrays->path());
  facts.left_out = std::move(left_out);
  return {std::move(facts), std::make_unique<VariableFields>(arrays, variables, budget)};
}

}  // namespace

OpenedFields open_variable_fields(std::shared_ptr<const StoredArrays> arrays, const CacheBudget& budget) {
  std::vector<std::string> left_out;
  const std::vector<GridVariable> variables = variables_of(*arrays, FieldPlan::steps, left_out);
  OpenedFields opened = open_all(arrays, variables, std::move(left_out), budget);
  opened.facts.time = times_of(*arrays, variables.front());
  return opened;
}

OpenedPlanes open_variable_planes(std::shared_ptr<const StoredArrays> arrays, FieldPlan plan,
                                  const CacheBudget& budget) {
  std::vector<std::string> left_out;
  const std::vector<GridVariable> variables = variables_of(*arrays, plan, left_out);
  const GridVariable& first = variables.front();
  const auto [outer, inner] = axes_of(plan);
  return {.fields = open_all(arrays, variables, std::move(left_out), budget),
          .outer = coordinate_along(*arrays, first, first.outer, outer),
          .inner = coordinate_along(*arrays, first, first.inner, inner)};
}

ConstantPlane read_constant_plane(const StoredArrays& arrays, const std::string& variable) {
  const ArrayInfo* array = arrays.find(variable);
  for (const ArrayInfo& candidate : arrays.arrays())
    if (array == nullptr && same_channel(candidate.name, variable)) array = &candidate;
  ISOBAR_CHECK(array != nullptr, arrays.path(), " holds no '", variable, "'");
  std::string reason;
  const Describer describer(arrays);
  const std::optional<GridVariable> found = describer.describe(*array, reason);
  ISOBAR_CHECK(reason.empty(), arrays.path(), ": ", reason);
  ISOBAR_CHECK(found && found->channels.size() == 1, arrays.path(), ": '", array->name,
               "' is not one plane of latitudes and longitudes");
  ConstantPlane plane{.values = {},
                      .height = found->extent(found->latitude),
                      .width = found->extent(found->longitude),
                      .latitudes = describer.axis_values(*found, found->latitude),
                      .longitudes = describer.axis_values(*found, found->longitude),
                      .units = text_attribute(*array, "units")};
  if (found->runs_northwards) std::ranges::reverse(plane.latitudes);
  check_extents({1, 1, plane.height, plane.width}, arrays.path());
  plane.values.resize(static_cast<std::size_t>(plane.height * plane.width));
  // `arrays` outlives the reader.
  VariableReader reader(std::shared_ptr<const StoredArrays>(std::shared_ptr<void>(), &arrays), *found, nullptr);
  const FieldCrop whole{0, plane.height, plane.width};
  reader.read(0, 0, whole, MissingPoints::kept, plane.values.data());
  if (const std::int64_t last = found->steps() - 1; last > 0) {
    std::vector<float> at_end(plane.values.size());
    reader.read(last, 0, whole, MissingPoints::kept, at_end.data());
    const bool is_constant = std::ranges::equal(
        plane.values, at_end, [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); });
    ISOBAR_CHECK(is_constant, arrays.path(), ": '", array->name, "' changes with time, so that it is no constant");
  }
  return plane;
}

}  // namespace isobar
