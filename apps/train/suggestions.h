// "Did you mean ...?" for a name that nobody knows: a config, a config key, a flag, a subcommand.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace isobar {

// The name of least edit distance (a swap of two neighbours counts once); the first of equals. names must not be empty.
std::string nearest_name(const std::string& name, const std::vector<std::string>& names);

// What may have been meant, or "": what `other_names` has for the name's letters (without '_' and '-'), else the
// nearest name if at most a third of its letters differ, else the first name that has this one as a part.
std::string suggestion(const std::string& name, const std::vector<std::string>& names,
                       const std::map<std::string, std::string>& other_names = {});

// "; did you mean X?", or "" where there is no suggestion.
std::string did_you_mean(const std::string& suggested);

}  // namespace isobar
