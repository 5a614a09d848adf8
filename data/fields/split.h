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
  std::optional<StepRange> range;
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
  std::optional<StepRange> train_range, valid_range, test_range;
  bool allow_overlap = false;
  std::optional<std::int64_t> limit_nsamples, limit_nsamples_val;
  SamplerKind sampler = SamplerKind::all_pairs;

  KeyTable keys();

  bool has_test() const { return !test_data_path.empty(); }
  // Error for a test set if there is none.
  SplitSource source(DataSplit split) const;

  // Whether training and validation set share one path, so that ranges must separate them.
  bool is_one_path() const;
  // Fills a null range of the two: with the rest of `steps` steps that the other range leaves; if both are null,
  // validation gets the last fifth and training the rest. Throws Error if the other range leaves nothing.
  void complete_ranges(std::int64_t steps);
};

// A set, the config key of its range and its name in messages.
struct NamedSet {
  const FieldSeries& steps;
  const char* range_key;
  const char* what;
};

// Throws Error naming both keys if a step is both in the evaluated set `judged` and in the earlier set.
void refuse_overlap(const NamedSet& earlier, const NamedSet& judged);

}  // namespace isobar
