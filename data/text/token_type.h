// The types of numbers that a token file may have, and their codes in its header.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace isobar {

enum class TokenType : std::uint8_t { u8 = 1, i8 = 2, i16 = 3, i32 = 4, i64 = 5, u16 = 8 };

std::size_t bytes_of(TokenType type);
const char* name_of(TokenType type);  // "uint16"
// The type of a code. Error that begins with `file` for floats and for codes that do not exist.
TokenType token_type(std::uint8_t code, const std::string& file);
// As Megatron chooses it: uint16 below 65,500 tokens, else int32.
TokenType token_type_for(std::int64_t vocabulary);

// Stored tokens as 64-bit numbers: `stored` has bytes_of(type) for each of `to`. Little-endian.
void unpack_tokens(TokenType type, std::span<const std::byte> stored, std::span<std::int64_t> to);
// Appends tokens as they are stored. They must fit the type.
void pack_tokens(TokenType type, std::span<const std::int32_t> tokens, std::vector<std::byte>& to);

}  // namespace isobar
