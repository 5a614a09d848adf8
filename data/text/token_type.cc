#include "data/text/token_type.h"

#include <bit>
#include <cstring>

#include "kernels/common/check.h"

namespace isobar {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian, and are copied as they are");

// Calls f with a number of the type that tokens are stored as.
template <class F>
void with_type(TokenType type, const F& f) {
  switch (type) {
    case TokenType::u8:
      return f(std::uint8_t{});
    case TokenType::i8:
      return f(std::int8_t{});
    case TokenType::i16:
      return f(std::int16_t{});
    case TokenType::i32:
      return f(std::int32_t{});
    case TokenType::i64:
      return f(std::int64_t{});
    case TokenType::u16:
      return f(std::uint16_t{});
  }
}

}  // namespace

std::size_t bytes_of(TokenType type) {
  std::size_t bytes = 0;
  with_type(type, [&](auto number) { bytes = sizeof number; });
  return bytes;
}

const char* name_of(TokenType type) {
  switch (type) {
    case TokenType::u8:
      return "uint8";
    case TokenType::i8:
      return "int8";
    case TokenType::i16:
      return "int16";
    case TokenType::i32:
      return "int32";
    case TokenType::i64:
      return "int64";
    case TokenType::u16:
      return "uint16";
  }
  return "";
}

TokenType token_type(std::uint8_t code, const std::string& file) {
  ISOBAR_CHECK(code != 6 && code != 7, file, " holds floats (type ", +code, "), which are no tokens");
  ISOBAR_CHECK((code >= 1 && code <= 5) || code == 8, file, " has numbers of type ", +code, ", which does not exist");
  return static_cast<TokenType>(code);
}

TokenType token_type_for(std::int64_t vocabulary) {
  constexpr std::int64_t kSmallVocabulary = 65500;
  return vocabulary < kSmallVocabulary ? TokenType::u16 : TokenType::i32;
}

void unpack_tokens(TokenType type, std::span<const std::byte> stored, std::span<std::int64_t> to) {
  with_type(type, [&](auto number) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      std::memcpy(&number, stored.data() + i * sizeof number, sizeof number);
      to[i] = number;
    }
  });
}

void pack_tokens(TokenType type, std::span<const std::int32_t> tokens, std::vector<std::byte>& to) {
  with_type(type, [&](auto number) {
    std::size_t at = to.size();
    to.resize(at + tokens.size() * sizeof number);
    for (const std::int32_t token : tokens) {
      number = static_cast<decltype(number)>(token);
      std::memcpy(to.data() + at, &number, sizeof number);
      at += sizeof number;
    }
  });
}

}  // namespace isobar
