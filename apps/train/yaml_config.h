// Configs in the tutorial's YAML: maps by name, each with scalars and lists of scalars. A map inherits from others
// through anchors and merge keys.
//
//   base: &base                     short: &short
//     lr: 5E-4                        <<: *base
//     img_size: [360, 720]            num_iters: 128
//
// Plain true and false are booleans, ~ and null are null, words that read as numbers are numbers, and the rest are
// strings (None too, which a config key reads as null). A map's own keys win over merged ones. A duplicate name or key
// is an error.
#pragma once

#include <filesystem>
#include <string>

#include "apps/train/config_file.h"

namespace isobar {

// The config of that name. Throws Error naming the file, and key or line, for a missing or malformed file, an unknown
// name, a duplicate key and a value of another type.
NamedConfig load_yaml_config(const std::filesystem::path& file, const std::string& name);

}  // namespace isobar
