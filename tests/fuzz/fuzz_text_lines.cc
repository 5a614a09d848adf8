// A file of any bytes, as JSON lines, as plain text and with a separator, compressed or not: texts in UTF-8, or an
// Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "data/text/json_text.h"
#include "data/text/text_files.h"
#include "data/text/utf8.h"
#include "kernels/common/check.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/target.h"

namespace {

constexpr std::size_t kMostText = std::size_t{64} << 20;  // of one input: a small file may unpack to much

void read_json(const std::string& path) {
  const std::vector<std::string> keys{"text", "b"};
  isobar::TextFiles files({.paths = {path}});
  std::size_t read = 0;
  while (const auto block = files.next()) {
    for (const isobar::RawDocument& document : block->documents) {
      std::int64_t replaced = 0;
      const std::string line = isobar::with_invalid_replaced(block->of(document), replaced);
      if (isobar::first_invalid_byte(line)) std::abort();
      for (const std::string& text : isobar::json_texts(line, keys))
        if (isobar::first_invalid_byte(text)) std::abort();
    }
    if ((read += block->text.size()) > kMostText) return;
  }
}

void read_plain(const std::string& path, std::optional<std::string> separator) {
  isobar::TextFiles files({.paths = {path}, .format = isobar::TextFormat::plain, .separator = std::move(separator)});
  std::size_t read = 0;
  while (const auto block = files.next()) {
    for (const isobar::RawDocument& document : block->documents)
      if (block->of(document).size() != document.bytes) std::abort();
    if ((read += block->text.size()) > kMostText) return;
  }
}

}  // namespace

FUZZ_TARGET(text_lines) {
  const isobar::testing::InputFile file(data, size);
  const auto tried = [](const auto& work) {
    try {
      work();
    } catch (const isobar::Error&) {
    }
  };
  tried([&] { read_json(file.path()); });
  tried([&] { read_plain(file.path(), std::nullopt); });
  tried([&] { read_plain(file.path(), ""); });
  return 0;
}
