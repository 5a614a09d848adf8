// Any bytes as vocab.json, merges.txt and a text, with a zero byte between them: the text is encoded and comes back, or
// there is an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "data/text/gpt2_tokenizer.h"
#include "data/text/utf8.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_folder.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(gpt2_tokenizer) {
  using isobar::testing::part_before;
  static const isobar::testing::InputFolder folder;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  constexpr std::string_view kZero("\0", 1);
  const std::string vocab = folder.write("vocab.json", part_before(input, kZero));
  const std::string merges = folder.write("merges.txt", part_before(input, kZero));
  try {
    const isobar::Gpt2Tokenizer tokenizer(vocab, merges, "<|endoftext|>");
    const auto ids = tokenizer.encode(input);
    if (isobar::first_invalid_byte(input)) std::abort();
    if (tokenizer.decode(ids) != input) std::abort();
    std::int64_t bytes = 0;
    for (const std::int32_t id : ids) bytes += tokenizer.bytes_of(id);
    if (bytes != static_cast<std::int64_t>(input.size())) std::abort();
  } catch (const isobar::Error&) {
  }
  return 0;
}
