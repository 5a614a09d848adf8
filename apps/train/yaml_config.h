// Configs in the tutorial's YAML: maps by name, each with scalars and lists of scalars, which take over from each other
// by anchors and merge keys.
//
//   base: &base                     short: &short
//     lr: 5E-4                        <<: *base
//     img_size: [360, 720]            num_iters: 128
//
// Plain true and false are booleans, what reads as a number is one, ~ and null are null, the rest are strings (None
// too, which a config key reads as null). A map's own keys win over merged ones. A name or a key that stands twice is
// an error.
#pragma once

#include <filesystem>
#include <string>

#include "apps/train/config_file.h"

namespace isobar {

// The config of that name. Throws Error naming the file, and key or line, for a missing or malformed file, an unknown
// name, a key that stands twice and a value of another form.
NamedConfig load_yaml_config(const std::filesystem::path& file, const std::string& name);

}  // namespace isobar
