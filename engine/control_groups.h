// The memory that the control groups of this process allow.
#pragma once

#include <cstddef>
#include <string>

namespace isobar {

// Bytes: the min of the memory limits of the control groups, of version 2 and 1, that contain this process; SIZE_MAX if
// none has a limit. root: what stands before the names /proc and /sys; a test gives a folder with a made-up tree.
std::size_t control_group_limit(const std::string& root = "");

}  // namespace isobar
