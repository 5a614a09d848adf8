#include "apps/sweep/sweep_plan.h"

#include <map>
#include <utility>

#include "apps/train/config.h"
#include "apps/train_flags.h"
#include "kernels/common/check.h"

namespace isobar {

using nlohmann::ordered_json;

namespace {

// The flags of `isobar train` that make this run's config.
TrainFlags flags_of(const SweepFile& file, const ordered_json& values, const std::string& data) {
  TrainFlags flags;
  flags.config.config = file.config;
  flags.data = data;
  for (const ordered_json* part : {&file.set, &values})
    for (const auto& [key, value] : part->items()) flags.config.assignments.push_back(key + "=" + value.dump());
  return flags;
}

NamedConfig config_of_run(const SweepFile& file, const ordered_json& values, const std::string& data) {
  NamedConfig named = named_config(flags_of(file, values, data));
  for (auto& [key, entry] : named.entries)  // an error names the file, not --set
    if (file.set.contains(key) || values.contains(key)) entry.origin = file.origin;
  return named;
}

void add_path_keys(RunConfig& config, std::vector<std::string>& names) {
  const std::vector<KeyTable> tables = config.tables();
  for (const Key* key : all_keys(tables))
    if (key->is_path && std::ranges::find(names, key->name) == names.end()) names.push_back(key->name);
}

void add_run(SweepPlan& plan, Combination combination, const std::string& data) {
  const NamedConfig named = config_of_run(plan.file, combination.values, data);
  RunConfig config = read_config(named.entries);
  config.check_before_data();
  config.batch.cut(0, 1);  // one rank
  config.make_paths_absolute();
  if (const std::string sentence = about_left_out(config); !sentence.empty()) plan.notes.insert(sentence);
  plan.notes.insert(named.notes.begin(), named.notes.end());
  if (plan.runs.empty()) plan.expdir = config.run.expdir;
  add_path_keys(config, plan.path_keys);
  plan.runs.push_back({std::move(combination.name), std::move(combination.values), to_json(config)});
}

void check_that_all_differ(const SweepPlan& plan) {
  std::map<std::string, const PlannedRun*> known;
  for (const PlannedRun& run : plan.runs) {
    const auto [other, is_new] = known.try_emplace(run.config.dump(), &run);
    ISOBAR_CHECK(is_new, plan.file.origin, ": the runs ", other->second->name, " and ", run.name,
                 " are the same: a value is there twice, or was drawn twice (then a smaller count, or more values, or "
                 "another seed)");
  }
}

}  // namespace

SweepPlan plan_sweep(SweepFile file, const std::string& data) {
  SweepPlan plan{.file = std::move(file), .runs = {}, .notes = {}, .path_keys = {}, .expdir = {}};
  for (Combination& combination : combinations_of(plan.file)) {
    const std::string name = combination.name;
    try {
      add_run(plan, std::move(combination), data);
    } catch (const Error& error) {
      throw_error(error.what(), " (run ", name, ")");
    }
  }
  check_that_all_differ(plan);
  return plan;
}

}  // namespace isobar
