// Any bytes, undone by any codecs, are as many bytes as were asked for, or an Error. The first byte counts codecs, of
// one byte each; two more say how many bytes are asked for; what follows is the chunk.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "data/files/codecs.h"
#include "kernels/common/check.h"
#include "tests/fuzz/target.h"

using isobar::Codec;

FUZZ_TARGET(codecs) {
  if (size < 3) return 0;
  const std::size_t count = data[0] % 4, wanted = data[1] | data[2] << 8;
  if (size < 3 + count) return 0;
  std::vector<Codec> codecs;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t byte = data[3 + i];
    codecs.push_back({.kind = static_cast<Codec::Kind>(byte % 7),
                      .element = byte / 7 % 9 + std::size_t{1},
                      .checksum_first = byte >= 128});
  }
  const auto* chunk = reinterpret_cast<const std::byte*>(data) + 3 + count;
  try {
    check_codecs(codecs, "input");
    if (undo_codecs(codecs, {chunk, chunk + (size - 3 - count)}, wanted, "input").size() != wanted) std::abort();
  } catch (const isobar::Error&) {
  }
  return 0;
}
