#include "data/text/byte_tokenizer.h"

#include "data/text/utf8.h"
#include "engine/files/checksum.h"
#include "kernels/common/check.h"

namespace isobar {

void ByteTokenizer::encode(std::string_view utf8, std::vector<std::int32_t>& ids) const {
  check_utf8(utf8);
  for (const char byte : utf8) ids.push_back(static_cast<unsigned char>(byte));
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids) const {
  check_ids(ids, size());
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (id < 256)
      bytes += static_cast<char>(id);
    else
      bytes += special_names()[static_cast<std::size_t>(id - 256)];
  }
  std::int64_t replaced = 0;
  return with_invalid_replaced(bytes, replaced);
}

std::int64_t ByteTokenizer::bytes_of(std::int32_t id) const {
  check_ids({&id, 1}, size());
  return id < 256 ? 1 : 0;
}

std::uint64_t ByteTokenizer::fingerprint() const {
  return xxh64(std::as_bytes(std::span(std::string_view("bytes, 256 eod, 257 pad"))));
}

}  // namespace isobar
