// Any bytes as a table of characters are a tokenizer that knows each of its own texts, or an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "data/text/character_tokenizer.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(character_table) {
  const isobar::testing::InputFile file(data, size);
  try {
    const isobar::CharacterTokenizer tokenizer{std::filesystem::path(file.path())};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(tokenizer.size()));
    std::iota(ids.begin(), ids.end(), 0);
    if (tokenizer.encode(tokenizer.decode(ids)) != ids) std::abort();
  } catch (const isobar::Error&) {
  }
  return 0;
}
