// Any bytes as a .bin of nanoGPT or llm.c are a token file with the same tokens, or an Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "data/text/token_file.h"
#include "data/text/token_tools.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_folder.h"
#include "tests/fuzz/target.h"

FUZZ_TARGET(imported_tokens) {
  static const isobar::testing::InputFolder folder;
  const std::string from = folder.write("in.bin", {reinterpret_cast<const char*>(data), size});
  try {
    const isobar::TokenFacts facts = isobar::import_tokens({.path = from,
                                                            .output_prefix = folder.path("p"),
                                                            .vocabulary = 1 << 16,
                                                            .eod = 10,
                                                            .existing = isobar::ExistingFile::replaced});
    const isobar::TokenFile file(folder.path("p"));
    if (file.tokens() != facts.tokens || file.documents() != facts.documents) std::abort();
    if (file.tokens() * 2 > static_cast<std::int64_t>(size)) std::abort();
  } catch (const isobar::Error&) {
  }
  return 0;
}
