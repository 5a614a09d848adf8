// The YAML files of the reference programs name some keys differently, and name no task: which one it is follows from
// the keys. What such a program does without saying so in its YAML stands in a named config of ours.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/train/config_file.h"

namespace isobar {

// A config of a YAML file with the names that isobar has (Key::in_yaml). A config without `task` and `model` that has
// keys of another program than the weather tutorial extends that program's named config, searched in `folders`. Names
// that mean nothing here are left out, with a note. Throws Error for a key that stands there under both of its names.
NamedConfig read_reference_names(NamedConfig config, const std::vector<std::filesystem::path>& folders);

// The key, and its value, that a word for data_loader_config means: the words of the tutorial on volumes (lowmem,
// inmem, dali-lowmem, synthetic) say where volumes come from.
struct LoaderKey {
  const char* key;
  std::string value;
};
LoaderKey loader_key(const std::string& word);

}  // namespace isobar
