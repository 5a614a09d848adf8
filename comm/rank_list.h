// Lists of ranks as people and messages say them: those at equal distances are one range.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace isobar {

// "rank 3", "ranks 1, 2, 5", "ranks 0 to 6, 9", "ranks 0, 4, ... 4092"; of very many ranges the first, and the number
// of ranks.
std::string ranks_text(std::span<const int> ranks);

// "0-6/1,9-9/1" and back. Throws Error for what is no list of at most `below` ranks, each below that.
std::string encoded_ranks(std::span<const int> ranks);
std::vector<int> decoded_ranks(const std::string& text, int below);

}  // namespace isobar
