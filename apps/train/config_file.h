// Named JSON configs that extend each other.
//
// A config is a flat JSON object of keys and values. "extends": "NAME" takes every key that the config does not set
// itself from NAME, except num_epochs if the config sets num_iters. A file holds either one config, named after the
// file, or several: an object of objects by name. Comments (// and /* */) are allowed. Every value remembers where it
// was set, so that an error can name key and file.
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
  // Which of two sources decides: 0 for a config, less for those that it extends, kLayerOfFlags for flags and --set.
  int layer = 0;
};
inline constexpr int kLayerOfFlags = 1;
using ConfigEntries = std::map<std::string, ConfigEntry>;

struct NamedConfig {
  std::string name;
  ConfigEntries entries;                // including inherited ones
  std::vector<std::string> notes = {};  // sentences for the user, on what was left out
};

// Folders in which configs are searched by name: those of ISOBAR_CONFIG_PATH (separated by ':'), then
// share/isobar/configs of the installation of this binary, then configs/ beside the sources that it was built from.
// Throws Error if ISOBAR_CONFIG_PATH names something that is not a folder.
std::vector<std::filesystem::path> config_search_path();

// reference: a NAME, searched in every *.json of the folders in order, or FILE.json[:NAME]. "extends" takes the same
// forms: a NAME is first searched in the same file, and a FILE is relative to the file that names it. Throws Error for
// a missing or malformed file, an unknown name (with the nearest known one) and a cycle. A folder that cannot be read
// is skipped.
NamedConfig load_config(const std::string& reference, const std::vector<std::filesystem::path>& folders);

// The reference as seen from the folder of `file`: a NAME stays, a relative FILE gets that folder before it.
std::string config_beside(const std::filesystem::path& file, const std::string& reference);

// The configs that load_config finds by name in these folders, each with its file.
struct ListedConfig {
  std::string name;
  std::filesystem::path file;
};
std::vector<ListedConfig> list_configs(const std::vector<std::filesystem::path>& folders);

// num_iters and num_epochs both set the length of a run, decay_iters and decay_epochs that of the decay. The one set
// last wins; of two in one config it is the one in epochs.

// Gives a config what it lacks of one that it extends.
void extend(ConfigEntries& entries, const ConfigEntries& inherited);

// Sets a key by a flag.
void set_entry(ConfigEntries& entries, const std::string& key, ConfigEntry entry);

// The entries of a flat object such as config.json; error messages name `origin`.
ConfigEntries entries_from(const nlohmann::ordered_json& object, const std::string& origin);

// Sets a key from "KEY=VALUE". VALUE is JSON if it parses as JSON, else a string.
void set_from_assignment(ConfigEntries& entries, const std::string& assignment);

}  // namespace isobar
