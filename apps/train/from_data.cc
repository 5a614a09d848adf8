#include "apps/train/from_data.h"

#include <array>
#include <filesystem>
#include <optional>

#include "data/era5/era5.h"
#include "kernels/common/check.h"
#include "models/config.h"

namespace isobar {

using nlohmann::json;

namespace {

constexpr const char* kOrigin = "the data";

bool is_null(const ConfigEntries& entries, const std::string& key) {
  const auto entry = entries.find(key);
  return entry != entries.end() && (entry->second.value.is_null() || entry->second.value == "None");
}

// A key's value, or its default.
template <class T>
T value_of(const ConfigEntries& entries, const char* key, T value) {
  read_entry(entries, key, value);
  return value;
}

// Sets keys and remembers what it set.
class Filler {
 public:
  explicit Filler(ConfigEntries& entries) : entries_(entries) {}

  void set(const std::string& key, const json& value) {
    entries_[key] = {value, kOrigin};
    told_ += (told_.empty() ? "" : ", ") + key + " " + value.dump();
  }
  void set_null(const std::string& key, const json& value) {
    if (is_null(entries_, key)) set(key, value);
  }
  const std::string& told() const { return told_; }

 private:
  ConfigEntries& entries_;
  std::string told_;
};

StepRange rest_beside(const StepRange& given, std::int64_t steps, bool before_first, const char* key) {
  const StepRange before{0, given[0]}, after{given[1], steps};
  const StepRange& first = before_first ? before : after;
  const StepRange& second = before_first ? after : before;
  const StepRange& rest = first[0] < first[1] ? first : second;
  ISOBAR_CHECK(rest[0] < rest[1], "config key ", key, " is [", given[0], ", ", given[1], ") and leaves none of the ",
               steps, " steps for the other set");
  return rest;
}

bool is_same_path(const std::string& a, const std::string& b) {
  std::error_code missing;
  return std::filesystem::equivalent(a, b, missing);
}

}  // namespace

DataSizes sizes_of(const Era5Dataset& data) {
  DataSizes sizes{data.channels(), data.height(), data.width(), true};
  std::int64_t first_step = 0;
  for (std::size_t file = 0; file < data.file_count(); first_step += data.file_steps(file++)) {
    try {
      data.time_of(first_step);
    } catch (const Error&) {
      sizes.tells_time = false;
    }
  }
  return sizes;
}

bool sizes_are_left_to_data(const ConfigEntries& entries) {
  bool any = false;
  for (const char* key : {"img_size", "n_in_channels", "n_out_channels", "patch_size", "time_features"})
    any |= is_null(entries, key);
  return any;
}

std::int64_t default_patch_size(std::int64_t height, std::int64_t width) {
  constexpr std::int64_t kLeastTokens = 100;
  for (const std::int64_t patch : {8, 4, 2}) {
    const bool divides = height % patch == 0 && width % patch == 0;
    if (divides && (height / patch) * (width / patch) >= kLeastTokens) return patch;
  }
  return 1;
}

std::string fill_sizes(ConfigEntries& entries, const DataSizes& data) {
  const Config defaults;
  Filler fill(entries);
  fill.set_null("img_size", {data.height, data.width});
  const auto [height, width] = value_of(entries, "img_size", defaults.img_size);
  fill.set_null("patch_size", default_patch_size(height, width));
  fill.set_null("n_in_channels", data.channels);
  fill.set_null("n_out_channels", value_of(entries, "n_in_channels", defaults.n_in_channels));
  fill.set_null("time_features", data.tells_time);
  return fill.told();
}

std::string fill_ranges(ConfigEntries& entries, std::int64_t steps) {
  using Range = std::optional<StepRange>;
  const Range train = value_of(entries, "train_range", Range()), valid = value_of(entries, "valid_range", Range());
  Filler fill(entries);
  const std::int64_t last_fifth = steps - (steps + 4) / 5;
  if (!train) {
    fill.set("train_range",
             valid ? rest_beside(*valid, steps, /*before_first=*/true, "valid_range") : StepRange{0, last_fifth});
  }
  if (!valid) {
    fill.set("valid_range",
             train ? rest_beside(*train, steps, /*before_first=*/false, "train_range") : StepRange{last_fifth, steps});
  }
  return fill.told();
}

std::vector<std::string> fill_from_data(ConfigEntries& entries) {
  const Config defaults;
  const std::string train = value_of(entries, "train_data_path", defaults.train_data_path);
  const std::string valid = value_of(entries, "valid_data_path", defaults.valid_data_path);
  const bool split = is_same_path(train, valid) && !value_of(entries, "allow_overlap", defaults.allow_overlap);
  const auto range_of = [&](const char* key) { return value_of(entries, key, std::optional<StepRange>()); };
  const bool ranges = split && !(range_of("train_range") && range_of("valid_range"));
  if (!ranges && !sizes_are_left_to_data(entries)) return {};

  const Era5Dataset data({.paths = {train}});
  std::vector<std::string> sentences;
  if (const std::string sizes = fill_sizes(entries, sizes_of(data)); !sizes.empty())
    sentences.push_back("from the data: " + sizes);
  if (const std::string told = ranges ? fill_ranges(entries, data.steps()) : ""; !told.empty())
    sentences.push_back(text("training and validation are parts of ", train, " (", data.steps(), " steps): ", told));
  return sentences;
}

}  // namespace isobar
