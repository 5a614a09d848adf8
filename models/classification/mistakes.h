// The picture of a classifier during training: its wrong predictions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/task.h"

namespace isobar {

// The first of N images [N, height, width] with byte values whose prediction differs from the label, each above the
// text "label > prediction"; the title gives their number. Images with the label kIgnoredLabel are skipped.
Picture draw_mistakes(std::span<const float> images, std::int64_t height, std::int64_t width,
                      const std::vector<std::int32_t>& labels, const std::vector<std::int32_t>& predictions);

}  // namespace isobar
