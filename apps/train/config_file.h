// Named JSON configs that extend each other.
//
// A config is a flat JSON object of keys and values; "extends": "NAME" takes every key that it does not set itself from
// NAME, but for num_epochs where it sets num_iters. A file holds either one config, named after the file, or several:
// an object of objects by name. Comments (// and /* */) are allowed. Every value remembers where it was set, so that a
// wrong one can be told with key and file.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace isobar {

struct ConfigEntry {
  nlohmann::json value;
  std::string origin;  // "configs/vit.json (short)", "--set", "--num-iters"
};
using ConfigEntries = std::map<std::string, ConfigEntry>;

struct NamedConfig {
  std::string name;
  ConfigEntries entries;  // inherited ones included
};

// Where configs are looked for by name: the folders of ISOBAR_CONFIG_PATH (separated by ':'), then
// share/isobar/configs of the tree that this binary was installed in, then the configs/ beside the sources it was
// built from. Throws Error when ISOBAR_CONFIG_PATH names something that is no folder.
std::vector<std::filesystem::path> config_search_path();

// reference: a NAME, looked for in every *.json of the folders in turn, or FILE.json[:NAME]. "extends" takes the same
// forms; a NAME is then looked for in the same file first, and a FILE is relative to the file that names it.
// Throws Error for a missing or malformed file, an unknown name (telling the nearest) and a cycle. A folder that cannot
// be read is passed over.
NamedConfig load_config(const std::string& reference, const std::vector<std::filesystem::path>& folders);

// The configs that load_config finds by name in these folders, each with the file it stands in.
struct ListedConfig {
  std::string name;
  std::filesystem::path file;
};
std::vector<ListedConfig> list_configs(const std::vector<std::filesystem::path>& folders);

// Sets a key. num_iters and num_epochs say the same thing, and the one that is set last counts: where num_iters is set,
// an earlier num_epochs goes.
void set_entry(ConfigEntries& entries, const std::string& key, ConfigEntry entry);

// The entries of a flat object, as config.json holds it; origin is told in messages.
ConfigEntries entries_from(const nlohmann::ordered_json& object, const std::string& origin);

// Sets a key from "KEY=VALUE". VALUE is JSON where it parses as JSON, else a string.
void set_from_assignment(ConfigEntries& entries, const std::string& assignment);

}  // namespace isobar
