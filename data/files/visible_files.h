// The files of a data set that is a folder.
#pragma once

#include <filesystem>
#include <vector>

namespace isobar {

// The entries of a folder, sorted by name, without hidden ones: files that are being written, and what other systems
// put beside a file ("._X.h5"). Error naming a folder that cannot be read.
std::vector<std::filesystem::path> visible_files(const std::filesystem::path& folder);

}  // namespace isobar
