// Any bytes as .bin, .idx and .json of a token file are sequences that can be read, or an Error. The input is .json, a
// zero byte, then two bytes for the length of .bin, .bin, .idx.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "data/text/token_file.h"
#include "data/text/token_tools.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_folder.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(token_file) {
  static const isobar::testing::InputFolder folder;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  folder.write("p.json", isobar::testing::part_before(input, std::string_view("\0", 1)));
  if (input.size() < 2) return 0;
  const std::size_t bin = static_cast<unsigned char>(input[0]) + 256u * static_cast<unsigned char>(input[1]);
  input.remove_prefix(2);
  folder.write("p.bin", input.substr(0, bin));
  folder.write("p.idx", input.substr(std::min(bin, input.size())));
  try {
    const isobar::TokenFile file(folder.path("p"), 1 << 16);
    std::int64_t tokens = 0;
    for (std::int64_t s = 0; s < file.sequences(); ++s) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(file.lengths()[static_cast<std::size_t>(s)]));
      file.read(s, 0, ids);
      tokens += static_cast<std::int64_t>(ids.size());
      for (const std::int32_t id : ids)
        if (id < 0 || id >= 1 << 16) std::abort();
    }
    if (tokens != file.tokens()) std::abort();
    std::int64_t last = 0;
    for (std::int64_t d = 0; d <= file.documents(); ++d) {
      const std::int64_t begin = file.document_begin(d);
      if (begin < last || begin > file.sequences()) std::abort();
      last = begin;
    }
    isobar::describe_tokens(folder.path("p"), std::nullopt, nullptr);
  } catch (const isobar::Error&) {
  }
  return 0;
}
