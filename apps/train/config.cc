#include "apps/train/config.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "apps/train/key_json.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/suggestions.h"

namespace isobar {

namespace {

// "vit; with image_regression cnn"
std::string default_networks() {
  const std::string usual = network_of_task(recipe_list().front().name);
  std::string text = usual;
  for (const RecipeEntry& task : recipe_list())
    if (task.network != usual) text += concat("; with ", task.name, " ", task.network);
  return text;
}

KeyTable task_table(RunConfig& config) {
  return {"The task",
          {key("task", config.task, "what is trained: " + names_of(recipe_list())),
           key("model", config.model,
               "the network that is trained: " + names_of(network_list()) + "; default: " + default_networks())
               .also_called({"network", "architecture", "arch"})}};
}

// The tables that every run has, whatever its recipe.
std::vector<KeyTable> run_tables(RunConfig& config) {
  return {config.reading.keys(),   config.compute.keys(),    config.compute.freezing_keys(),
          config.optimizer.keys(), config.loss_scale.keys(), config.schedule.keys(),
          config.batch.keys(),     config.run.keys(),        config.tutorial.keys()};
}

void check_fits_fp32(const char* name, double value, const KeyOrigins& origins) {
  const bool fits = value <= std::numeric_limits<float>::max() && (value == 0 || static_cast<float>(value) > 0);
  ISOBAR_CHECK(fits, origins.where(name), " must be a number of fp32, not ", value);
}

// Task and network decide which other keys exist, so these two keys are read first.
std::string name_in(const ConfigEntries& entries, const char* key, const char* otherwise) {
  const auto entry = entries.find(key);
  if (entry == entries.end()) return otherwise;
  ISOBAR_CHECK(entry->second.value.is_string(), "config key ", key, " in ", entry->second.origin,
               " must be a string, not ", shown(entry->second.value));
  return entry->second.value.get<std::string>();
}

// Calls f with the defaults of every task and every network.
template <class F>
void for_all_configs(const F& f) {
  for (const RecipeEntry& task : recipe_list())
    for (const NetworkEntry& model : network_list()) {
      RunConfig config(task.name, model.name);
      f(config);
    }
}

const Key* find_key(const std::vector<const Key*>& keys, const std::string& name) {
  const auto found = std::ranges::find(keys, name, &Key::name);
  return found == keys.end() ? nullptr : *found;
}

bool is_key_of_any_config(const std::string& name) {
  bool is_known = false;
  for_all_configs([&](RunConfig& config) {
    const std::vector<KeyTable> tables = config.tables();
    is_known |= find_key(all_keys(tables), name) != nullptr;
  });
  return is_known;
}

// The layer of the source that chose task and network.
int layer_of_choice(const ConfigEntries& entries) {
  int layer = std::numeric_limits<int>::min();
  for (const char* key : {"task", "model"})
    if (const auto entry = entries.find(key); entry != entries.end()) layer = std::max(layer, entry->second.layer);
  return layer;
}

}  // namespace

std::string task_of(const ConfigEntries& entries) {
  return name_in(entries, "task", recipe_list().front().name);
}

std::string model_of(const ConfigEntries& entries) {
  return name_in(entries, "model", network_of_task(task_of(entries)));
}

RunConfig::RunConfig(const std::string& task_name) : RunConfig(task_name, network_of_task(task_name)) {}

RunConfig::RunConfig(const std::string& task_name, const std::string& model_name)
    : task(task_name),
      model(model_name),
      network(make_network_recipe(model_name)),
      recipe(make_recipe(task_name, network)) {}

RunConfig::RunConfig(std::string task_name, std::string model_name, std::shared_ptr<NetworkRecipe> its_network,
                     std::unique_ptr<Recipe> own_recipe)
    : task(std::move(task_name)),
      model(std::move(model_name)),
      network(std::move(its_network)),
      recipe(std::move(own_recipe)) {}

std::vector<KeyTable> RunConfig::tables() {
  std::vector<KeyTable> tables{task_table(*this), network->keys()};
  for (KeyTable& table : recipe->keys()) tables.push_back(std::move(table));
  for (KeyTable& table : run_tables(*this)) tables.push_back(std::move(table));
  return tables;
}

RunConfig read_config(const ConfigEntries& entries) {
  return read_config(entries, RunConfig(task_of(entries), model_of(entries)));
}

RunConfig read_config(const ConfigEntries& entries, RunConfig config) {
  const std::vector<KeyTable> tables = config.tables();
  const std::vector<const Key*> keys = all_keys(tables);
  const int choice = layer_of_choice(entries);
  for (const auto& [name, entry] : entries) {
    const Key* key = find_key(keys, name);
    if (key == nullptr && entry.layer < choice && is_key_of_any_config(name)) {
      config.left_out.push_back(name);
      continue;
    }
    ISOBAR_CHECK(key != nullptr, "unknown config key ", name, " in ", entry.origin,
                 did_you_mean(suggested_key(name, tables)), " (isobar train --list-keys names all)");
  }
  for (const Key* key : keys) {
    const auto entry = entries.find(key->name);
    if (entry == entries.end()) continue;
    const auto& [value, origin, layer] = entry->second;
    config.origins.set(key->name, origin);
    ISOBAR_CHECK(read_value(*key, value), config.origins.where(key->name), " must be ", expected_value(*key), ", not ",
                 shown(value));
  }
  return config;
}

std::string about_left_out(const RunConfig& config) {
  if (config.left_out.empty()) return "";
  std::string sentence = concat("left out, since ", config.model, " for ", config.task, " has no such keys:");
  for (const std::string& key : config.left_out) sentence += " " + key;
  return sentence;
}

void print_left_out(const RunConfig& config) {
  if (const std::string sentence = about_left_out(config); !sentence.empty()) std::cout << sentence << std::endl;
}

void RunConfig::check() {
  check_keys(tables(), origins);
  check_numbers();
}

void RunConfig::check_before_data() {
  const std::vector<KeyTable> all = tables();
  for (const Key* key : all_keys(all)) check_bounds(*key, origins);
  check_keys(run_tables(*this), origins);
  check_numbers();
}

// Checks numbers that are used in fp32 arithmetic.
void RunConfig::check_numbers() const {
  if (compute.dtype != ArithmeticType::fp32) return;
  check_fits_fp32("eps", optimizer.eps, origins);
  check_fits_fp32("weight_decay", optimizer.weight_decay, origins);
  check_fits_fp32("grad_clip", optimizer.grad_clip, origins);
  check_fits_fp32("lr", schedule.lr, origins);
  check_fits_fp32("end_lr", schedule.end_lr, origins);
  check_fits_fp32("warmup_lr", schedule.warmup_lr, origins);
}

void RunConfig::make_paths_absolute() {
  for (std::string* path : paths_of(tables())) {
    if (path->empty()) continue;                           // the file is not used
    if (path->find("://") != std::string::npos) continue;  // an address, which its reader refuses
    *path = std::filesystem::absolute(*path).lexically_normal().string();
  }
}

TrainerOptions RunConfig::trainer_options() const {
  return {.batch = batch, .optimizer = optimizer, .schedule = schedule, .compute = compute, .loss_scale = loss_scale};
}

TrainerOptions RunConfig::trainer_options(std::int64_t iterations_per_epoch) const {
  TrainerOptions options = trainer_options();
  options.schedule = schedule.of_run(iterations_per_epoch);
  options.iterations_per_epoch = iterations_per_epoch;
  return options;
}

std::vector<std::string> RunConfig::keys_free_on_resume() {
  std::vector<std::string> names;
  const std::vector<KeyTable> all = tables();
  for (const Key* key : all_keys(all))
    if (key->may_change_on_resume) names.push_back(key->name);
  return names;
}

nlohmann::ordered_json to_json(RunConfig& config, const std::vector<FoundKey>& found) {
  nlohmann::ordered_json object;
  const std::vector<KeyTable> tables = config.tables();
  for (const Key* key : all_keys(tables)) object[key->name] = write_value(*key);
  for (const FoundKey& one : found) {
    ISOBAR_CHECK(object.contains(one.key), "the data say what the config key ", one.key,
                 " is, and there is no such key");
    std::visit([&](const auto& value) { object[one.key] = value; }, one.value);
  }
  return object;
}

void set_data(ConfigEntries& entries, const Recipe& recipe, const std::string& data, DataUse use) {
  for (const auto& [key, path] : recipe.paths_in(data)) {
    for (const std::string& replaced : recipe.keys_replaced_by(key, use == DataUse::judging)) entries.erase(replaced);
    set_entry(entries, key, {.value = std::filesystem::absolute(path).lexically_normal().string(), .origin = "--data"});
  }
}

void add_older_values(ConfigEntries& entries, const std::string& origin) {
  RunConfig config(task_of(entries), model_of(entries));
  const std::vector<KeyTable> tables = config.tables();
  for (const Key* key : all_keys(tables))
    if (!key->older_value.empty())
      entries.try_emplace(key->name, ConfigEntry{parse_json<nlohmann::json>(key->older_value, key->name), origin});
}

std::string suggested_key(const std::string& name, const std::vector<KeyTable>& tables) {
  std::vector<std::string> names;
  std::map<std::string, std::string> other_names;
  for (const KeyTable& table : tables) {
    for (const Key& key : table.keys) {
      names.push_back(key.name);
      for (const std::string& other : key.other_names) other_names.emplace(other, key.name);
    }
  }
  return suggestion(name, names, other_names);
}

std::string suggested_key(const std::string& name) {
  std::string found;
  for_all_configs([&](RunConfig& config) {
    if (found.empty()) found = suggested_key(name, config.tables());
  });
  return found;
}

namespace {

// "an integer, or null; at least 1".
std::string expected_with_bounds(const Key& key) {
  const std::string bounds = bounds_text(key);
  return concat(expected_value(key), bounds.empty() ? "" : "; ", bounds);
}

// The end of the page of keys.
std::string keys_free_on_resume() {
  std::set<std::string> names;
  for_all_configs([&](RunConfig& config) {
    const std::vector<KeyTable> tables = config.tables();
    for (const Key* key : all_keys(tables))
      if (key->may_change_on_resume) names.insert(key->name);
  });
  std::string text = "\n## Resuming\n\nA run that is resumed keeps its config. These keys alone may change:\n";
  for (const std::string& name : names) text += concat("- `", name, "`\n");
  return text;
}

}  // namespace

std::string describe_keys() {
  std::string page = R"(# Config keys

Every key of a training config, as `KEY`: default (what it takes). `isobar train --list-keys` prints this page. A config
is a JSON file (`configs/`), or the tutorial's YAML; `--set KEY=VALUE` wins over it, and over the flags that set a key.
)";
  std::map<std::string, std::vector<std::string>> described;  // heading -> keys
  for_all_configs([&](RunConfig& config) {
    for (const KeyTable& table : config.tables()) {
      std::vector<std::string> names;
      for (const Key& key : table.keys) names.push_back(key.name);
      const auto [before, is_new] = described.try_emplace(table.heading, names);
      ISOBAR_CHECK(before->second == names, "two components have the heading \"", table.heading, "\"");
      if (!is_new) continue;  // several tasks share this component
      page += concat("\n## ", table.heading, "\n\n");
      for (const Key& key : table.keys)
        page += concat("- `", key.name, "`: `", write_value(key).dump(), "` (", expected_with_bounds(key),
                       "): ", key.sentence, "\n");
    }
  });
  return page + keys_free_on_resume();
}

}  // namespace isobar
