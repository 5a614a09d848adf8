#include "apps/train/reference_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "apps/train/config.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// Named configs that do as a reference program does.
constexpr std::array kPrograms{"cnn", "unet"};

struct Unused {
  const char* name;
  const char* instead;
};
constexpr std::array kUnused{
    Unused{"valid_batch_size", "a batch of a validation has as many samples as a part of a training batch"},
    Unused{"log_to_screen", "the log is always shown"},
    Unused{"save_checkpoint", "checkpoints are always written"},
    Unused{"enable_amp", "the tutorial reads it from its flag alone; set amp_mode"},
    Unused{"enable_apex", "isobar's Adam is one fused kernel always"},
    Unused{"enable_benchy", "isobar-bench times kernels"},
    Unused{"box_size", "the files say how large their volumes are"},
    Unused{"train_path_npy_data", "train_path is read; it may be such a file"},
    Unused{"train_path_npy_label", "it is the file beside X_data.npy"},
    Unused{"val_path_npy_data", "val_path is read; it may be such a file"},
    Unused{"val_path_npy_label", "it is the file beside X_data.npy"},
    Unused{"use_cache", "name the copies by train_path and val_path"},
};

constexpr const char* kLoader = "data_loader_config";

bool is_unused(const std::string& name) {
  return std::ranges::any_of(kUnused, [&](const Unused& unused) { return name == unused.name; });
}

// The names of the keys of a task and a network: isobar's, and those in YAML with the keys that they mean.
struct Names {
  std::set<std::string> own;
  std::map<std::string, std::string> in_yaml;

  explicit Names(RunConfig config) {
    const std::vector<KeyTable> tables = config.tables();
    for (const Key* key : all_keys(tables)) {
      own.insert(key->name);
      for (const std::string& name : key->yaml_names) in_yaml.emplace(name, key->name);
    }
  }
  bool know_all_of(const ConfigEntries& entries) const {
    return std::ranges::all_of(entries, [&](const auto& entry) {
      return own.contains(entry.first) || in_yaml.contains(entry.first) || is_unused(entry.first);
    });
  }
};

// The entries of a config that another one extends: it decides before them.
ConfigEntries behind(ConfigEntries entries) {
  for (auto& [name, entry] : entries) --entry.layer;
  return entries;
}

void rename(NamedConfig& config, const Names& names) {
  for (const auto& [in_yaml, own] : names.in_yaml) {
    const auto found = config.entries.extract(in_yaml);
    if (found.empty()) continue;
    ISOBAR_CHECK(!config.entries.contains(own), "config key ", in_yaml, " in ", found.mapped().origin, " is ", own,
                 ", which stands there too");
    config.entries[own] = found.mapped();
  }
  if (const auto loader = config.entries.find(kLoader); loader != config.entries.end()) {
    const auto* word = loader->second.value.get_ptr<const std::string*>();
    const LoaderKey meant = word != nullptr ? loader_key(*word) : LoaderKey{kLoader, ""};
    if (meant.key != std::string(kLoader)) {
      ConfigEntry entry = config.entries.extract(kLoader).mapped();
      entry.value = meant.value;
      config.entries.try_emplace(meant.key, std::move(entry));
    }
  }
  for (const auto& [name, instead] : kUnused)
    if (config.entries.erase(name) > 0) config.notes.push_back(concat(name, ": ", instead));
}

}  // namespace

LoaderKey loader_key(const std::string& word) {
  if (word == "lowmem" || word == "dali-lowmem") return {"volumes", "file"};
  if (word == "inmem") return {"volumes", "memory"};
  if (word == "synthetic") return {"volumes", "synthetic"};
  return {kLoader, word};
}

NamedConfig read_reference_names(NamedConfig config, const std::vector<std::filesystem::path>& folders) {
  const Names declared(RunConfig(task_of(config.entries), model_of(config.entries)));
  const bool says_task = config.entries.contains("task") || config.entries.contains("model");
  if (!says_task && !declared.know_all_of(config.entries)) {
    for (const char* program : kPrograms) {
      const ConfigEntries parent = load_config(program, folders).entries;
      const Names names(RunConfig(task_of(parent), model_of(parent)));
      if (!names.know_all_of(config.entries)) continue;
      rename(config, names);
      extend(config.entries, behind(parent));
      return config;
    }
  }
  rename(config, declared);
  return config;
}

}  // namespace isobar
