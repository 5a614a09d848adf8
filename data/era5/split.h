// Which files and which of their steps train and validate, and where their statistics lie, as a config gives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "data/era5/era5.h"
#include "data/era5/pairs.h"
#include "engine/keys.h"

namespace isobar {

template <>
struct EnumNames<SamplerKind> {
  static constexpr std::array names{"all_pairs", "tutorial"};
};

// Which steps of which files one set is made of.
struct SplitSource {
  std::string path;
  std::optional<StepRange> range;
  const char* range_key = "";              // the config key of the range
  std::optional<std::int64_t> limit = {};  // of samples
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
  // Error for a test set that does not exist.
  SplitSource source(DataSplit split) const;

  // Whether the first two sets are parts of one path, so that ranges have to tell them apart.
  bool is_one_path() const;
  // Where one of the ranges is null: what the other leaves of `steps` steps, or the last fifth to validate with and the
  // rest to train on. Throws Error where the other leaves nothing.
  void complete_ranges(std::int64_t steps);
};

// A set, with the config key of its range and what it is called.
struct NamedSet {
  const Era5Dataset& steps;
  const char* range_key;
  const char* what;
};

// Throws Error where a step is both in the set that is judged and in an earlier one, naming both keys.
void refuse_overlap(const NamedSet& earlier, const NamedSet& judged);

}  // namespace isobar
