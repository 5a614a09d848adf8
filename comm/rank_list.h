// Lists of ranks as text, for users and for messages. Ranks at equal distances are one range.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace isobar {

// "rank 3", "ranks 1, 2, 5", "ranks 0 to 6, 9", "ranks 0, 4, ... 4092". If there are many ranges: only the first ones,
// and the number of ranks.
std::string ranks_text(std::span<const int> ranks);

// "0-6/1,9-9/1" and back. Throws Error if the text is no list of at most `below` ranks, each less than `below`.
std::string encoded_ranks(std::span<const int> ranks);
std::vector<int> decoded_ranks(const std::string& text, int below);

}  // namespace isobar
