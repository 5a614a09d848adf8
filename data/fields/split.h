// Which files and steps are for training, validation and test, and where their statistics are: options of the config.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/fields/field_series.h"
#include "data/fields/pairs.h"
#include "engine/keys.h"

namespace isobar {

template <>
struct EnumNames<SamplerKind> {
  static constexpr std::array names{"all_pairs", "tutorial"};
};

// The files and steps of one set.
struct SplitSource {
  std::string path;
  std::optional<RangeValue> range;
  const char* range_key = "";              // the config key of the range
  std::optional<std::int64_t> limit = {};  // max number of samples
};

struct SplitOptions {
  std::string train_data_path = "/data/train";
  std::string valid_data_path = "/data/valid";
  std::string test_data_path;  // empty: no test set
  std::string global_means_path = "/data/stats/global_means.npy";
  std::string global_stds_path = "/data/stats/global_stds.npy";
  std::string time_means_path = "/data/stats/time_means.npy";
  std::int64_t dt = 1;
  std::optional<std::string> lead_time;  // "6h": sets dt
  bool span_files = true;
  std::optional<RangeValue> train_range, valid_range, test_range;
  bool allow_overlap = false;
  std::optional<std::int64_t> limit_nsamples, limit_nsamples_val;
  SamplerKind sampler = SamplerKind::all_pairs;

  KeyTable keys();

  bool has_test() const { return !test_data_path.empty(); }
  // Error for a test set if there is none.
  SplitSource source(DataSplit split) const;

  // Whether training and validation set share one path, so that ranges must separate them.
  bool is_one_path() const;
  // Replaces dates by the steps that they are in `data`, which training and validation share.
  void count_dates(const FieldSeries& data);
  // Fills a null range of the two: with the rest of `steps` steps that the other range leaves; if both are null,
  // validation gets the last fifth and training the rest. Throws Error if the other range leaves nothing. There must be
  // no dates.
  void complete_ranges(std::int64_t steps);
};

// The hours of a lead time: "6h", "90min", "1d". Error naming `where` for any other text.
double hours_of_lead_time(const std::string& text, const std::string& where);
// The steps of `data` that a lead time is. Error naming both numbers if it is no multiple of the step from one to the
// next, or if that step is unknown. key: the config key that holds it, for messages.
std::int64_t steps_of_lead_time(const std::string& text, const FieldSeries& data, const std::string& key = "lead_time");

// A set, the config key of its range and its name in messages.
struct NamedSet {
  const FieldSeries& steps;
  const char* range_key;
  const char* what;
};

// Throws Error naming both keys if a step is both in the evaluated set `judged` and in the earlier set.
void refuse_overlap(const NamedSet& earlier, const NamedSet& judged);

}  // namespace isobar
