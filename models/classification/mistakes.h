// The picture of a classifier while training: what it reads wrongly.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/task.h"

namespace isobar {

// The first images [N, height, width] of bytes whose prediction is not their label, with "label > prediction" below
// each; how many of the N there are stands on top. A label that is kIgnoredLabel counts nothing.
Picture draw_mistakes(std::span<const float> images, std::int64_t height, std::int64_t width,
                      const std::vector<std::int32_t>& labels, const std::vector<std::int32_t>& predictions);

}  // namespace isobar
