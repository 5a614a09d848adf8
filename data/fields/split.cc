#include "data/fields/split.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <vector>

#include "data/fields/calendar.h"
#include "data/fields/field_labels.h"

#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

void check_range(const char* name, const std::optional<RangeValue>& range, const KeyOrigins& origins) {
  if (!range) return;
  if (const auto* const dates = std::get_if<1>(&*range)) {
    for (const std::string& date : *dates) static_cast<void>(parse_date(date, origins.where(name)));
    return;
  }
  const StepRange& steps = std::get<0>(*range);
  ISOBAR_CHECK(0 <= steps[0] && steps[0] < steps[1], origins.where(name),
               " must be [first, end) with 0 <= first < end");
}

StepRange rest_beside(const StepRange& given, std::int64_t steps, bool before_first, const char* key) {
  const StepRange before{0, given[0]}, after{given[1], steps};
  const StepRange& first = before_first ? before : after;
  const StepRange& second = before_first ? after : before;
  const StepRange& rest = first[0] < first[1] ? first : second;
  ISOBAR_CHECK(rest[0] < rest[1], "config key ", key, " is [", given[0], ", ", given[1], ") and leaves none of the ",
               steps, " steps for the other set");
  return rest;
}

// A segment of a set within one file; steps are counted within the file.
struct FilePart {
  fs::path file;
  std::int64_t first = 0, end = 0;
};

std::vector<FilePart> parts_of(const FieldSeries& dataset) {
  std::vector<FilePart> parts;
  for (const Segment& segment : dataset.segments()) {
    const Place first = dataset.place(segment.first);
    parts.push_back({fs::canonical(dataset.file_name(first.file)), first.step, first.step + segment.count});
  }
  return parts;
}

}  // namespace

KeyTable SplitOptions::keys() {
  return {
      "The data",
      {key("train_data_path", train_data_path, "folder of .h5 files, or a file, to train on")
           .path()
           .free_on_resume()
           .also_called({"traindata"}),
       key("valid_data_path", valid_data_path,
           "the same to validate with; where it is train_data_path, see train_range")
           .path()
           .free_on_resume()
           .also_called({"validdata", "valdata"}),
       key("test_data_path", test_data_path,
           "the same for a third set, which is scored once at the end of a run, with the best weights; empty: none")
           .path()
           .free_on_resume()
           .also_called({"testdata"}),
       key("global_means_path", global_means_path,
           "mean of each variable, .npy of shape (1, V, 1, 1); where none of the three files exists, they are made "
           "from the training steps and kept in the run folder")
           .path()
           .free_on_resume(),
       key("global_stds_path", global_stds_path, "standard deviation of each variable, likewise")
           .path()
           .free_on_resume(),
       key("time_means_path", time_means_path,
           "mean over time, (1, V, LAT, LON), for the anomaly correlation of forecasts")
           .path()
           .free_on_resume(),
       key("dt", dt, "steps from input to target").at_least(1).also_called({"timestep"}),
       key("lead_time", lead_time, "time from input to target, as 6h, 90min or 1d, instead of dt; null: dt decides"),
       key("span_files", span_files,
           "a pair may lie in two files that follow each other without a hole in time, if all files have times")
           .in_older_runs("false"),
       key("train_range", train_range,
           "steps [first, end) to train on, counted over the files in order, or two dates, both of them included; "
           "null: "
           "all, or, where train_data_path and valid_data_path are one, what valid_range leaves"),
       key("valid_range", valid_range,
           "steps [first, end) or dates to validate with; null: all, or, where the paths are one, what train_range "
           "leaves, "
           "or the last fifth"),
       key("test_range", test_range, "steps [first, end) or dates of test_data_path; null: all").free_on_resume(),
       key("allow_overlap", allow_overlap, "steps may be in several of the three sets").in_older_runs("true"),
       key("limit_nsamples", limit_nsamples, "only the first N training samples").at_least(1),
       key("limit_nsamples_val", limit_nsamples_val, "only the first N validation samples").at_least(1),
       key("sampler", sampler, "all_pairs: every pair of steps once an epoch; tutorial: the tutorial's index rule")},
      [this](const KeyOrigins& origins) {
        check_range("train_range", train_range, origins);
        check_range("valid_range", valid_range, origins);
        check_range("test_range", test_range, origins);
        if (lead_time) static_cast<void>(hours_of_lead_time(*lead_time, origins.where("lead_time")));
        ISOBAR_CHECK(!test_range || has_test(), origins.where("test_range"),
                     " is a part of test_data_path, which is empty");
      }};
}

SplitSource SplitOptions::source(DataSplit split) const {
  if (split == DataSplit::train) return {train_data_path, train_range, "train_range", limit_nsamples};
  if (split == DataSplit::test) {
    ISOBAR_CHECK(has_test(), "there is no test set: name one by the config key test_data_path");
    return {test_data_path, test_range, "test_range"};
  }
  return {valid_data_path, valid_range, "valid_range", limit_nsamples_val};
}

double hours_of_lead_time(const std::string& text, const std::string& where) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, number);
  const std::string name(unit, end);
  const double hours = name == "min" ? 1.0 / 60 : name == "h" ? 1.0 : name == "d" ? 24.0 : 0.0;
  ISOBAR_CHECK(error == std::errc() && hours > 0 && number > 0 && std::isfinite(number), where, " is '", text,
               "', but a lead time is a number and min, h or d, as 6h");
  return number * hours;
}

std::int64_t steps_of_lead_time(const std::string& text, const FieldSeries& data, const std::string& key) {
  const std::string where = concat("config key ", key, key == "lead_time" ? " is " : " has ");
  const double hours = hours_of_lead_time(text, "config key " + key), step = data.labels().step_hours;
  ISOBAR_CHECK(step > 0, where, text, ", but the time from step to step of ", data.file_name(0), " is unknown",
               key == "lead_time" ? ": set dt" : "");
  const double steps = std::round(hours / step);
  ISOBAR_CHECK(steps >= 1 && std::abs(steps * step - hours) <= 1e-6 * hours, where, text,
               ", which is no multiple of the ", hours_text(step), " from step to step of ", data.file_name(0));
  return static_cast<std::int64_t>(steps);
}

bool SplitOptions::is_one_path() const {
  std::error_code missing;
  return train_data_path == valid_data_path || fs::equivalent(train_data_path, valid_data_path, missing);
}

void SplitOptions::count_dates(const FieldSeries& data) {
  if (train_range) train_range = data.steps_of(*train_range, "train_range");
  if (valid_range) valid_range = data.steps_of(*valid_range, "valid_range");
}

void SplitOptions::complete_ranges(std::int64_t steps) {
  const std::int64_t last_fifth = steps - (steps + 4) / 5;
  const auto known = [](const std::optional<RangeValue>& range) {
    return range ? std::optional(std::get<StepRange>(*range)) : std::nullopt;
  };
  const std::optional<StepRange> train = known(train_range), valid = known(valid_range);
  if (!train)
    train_range = valid ? rest_beside(*valid, steps, /*before_first=*/true, "valid_range") : StepRange{0, last_fifth};
  if (!valid)
    valid_range =
        train ? rest_beside(*train, steps, /*before_first=*/false, "train_range") : StepRange{last_fifth, steps};
}

void refuse_overlap(const NamedSet& earlier, const NamedSet& judged) {
  const std::vector<FilePart> seen = parts_of(earlier.steps);
  for (const FilePart& v : parts_of(judged.steps)) {
    for (const FilePart& t : seen) {
      const std::int64_t first = std::max(t.first, v.first), end = std::min(t.end, v.end);
      ISOBAR_CHECK(t.file != v.file || first >= end, earlier.range_key, " and ", judged.range_key, " share steps ",
                   first, " to ", end - 1, " of ", v.file.string(), ": ", judged.what, " would look at what was ",
                   earlier.what, " on (config key allow_overlap permits it)");
    }
  }
}

}  // namespace isobar
