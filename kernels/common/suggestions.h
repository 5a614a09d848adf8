// "Did you mean ...?" for an unknown name: of a config, a config key, a flag, a subcommand.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace isobar {

// The name with the smallest edit distance (a swap of two adjacent letters counts once); the first one of a tie. names
// must not be empty.
std::string nearest_name(const std::string& name, const std::vector<std::string>& names);

// The `count` nearest names, the nearest first; all of them if there are fewer.
std::vector<std::string> nearest_names(const std::string& name, std::vector<std::string> names, std::size_t count);

// The name that may have been meant, or "": the entry of `other_names` for the name's letters (without '_' and '-'),
// else the nearest name if at most a third of its letters differ, else the first name that contains this one.
std::string suggestion(const std::string& name, const std::vector<std::string>& names,
                       const std::map<std::string, std::string>& other_names = {});

// "; did you mean X?", or "" without a suggestion.
std::string did_you_mean(const std::string& suggested);

}  // namespace isobar
