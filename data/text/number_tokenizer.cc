#include "data/text/number_tokenizer.h"

#include <optional>

#include "engine/files/checksum.h"
#include "engine/files/json.h"
#include "kernels/common/check.h"
#include "kernels/common/number_text.h"

namespace isobar {
namespace {

constexpr std::int64_t kMostNumbers = (std::int64_t{1} << 31) - 2;
constexpr std::string_view kWhiteSpace = " \t\n\r";

}  // namespace

NumberTokenizer::NumberTokenizer(std::int64_t numbers) : numbers_(numbers) {
  ISOBAR_CHECK(numbers >= 1 && numbers <= kMostNumbers, "tokenizer numbers: ", numbers, " is no number of tokens");
}

void NumberTokenizer::encode(std::string_view utf8, std::vector<std::int32_t>& ids) const {
  check_utf8(utf8);
  for (std::size_t begin = utf8.find_first_not_of(kWhiteSpace); begin != std::string_view::npos;) {
    const std::string_view word = utf8.substr(begin, utf8.find_first_of(kWhiteSpace, begin) - begin);
    const std::optional<std::int64_t> id = number_from<std::int64_t>(word);
    if (!id || *id < 0 || *id >= numbers_)
      throw TextError(in_quotes(std::string(word)) + " at ", begin, concat(" is no number from 0 to ", numbers_ - 1));
    ids.push_back(static_cast<std::int32_t>(*id));
    begin = utf8.find_first_not_of(kWhiteSpace, begin + word.size());
  }
}

std::string NumberTokenizer::decode(std::span<const std::int32_t> ids) const {
  check_ids(ids, size());
  std::string text;
  for (const std::int32_t id : ids) {
    if (!text.empty()) text += ' ';
    text += id < numbers_ ? std::to_string(id) : special_names()[0];
  }
  return text;
}

std::int64_t NumberTokenizer::bytes_of(std::int32_t id) const {
  check_ids({&id, 1}, size());
  return id < numbers_ ? static_cast<std::int64_t>(std::to_string(id).size()) + 1 : 0;
}

std::uint64_t NumberTokenizer::fingerprint() const {
  const std::string all = concat("numbers below ", numbers_, ", then eod");
  return xxh64(std::as_bytes(std::span(all)));
}

}  // namespace isobar
