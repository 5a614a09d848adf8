// HMAC-SHA256 (RFC 2104, FIPS 180-4): who knows a key shows it without telling it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace isobar {

inline constexpr std::size_t kDigestBytes = 32;

std::string sha256(std::string_view bytes);                             // kDigestBytes
std::string hmac_sha256(std::string_view key, std::string_view bytes);  // kDigestBytes

// Takes as long whether the texts are equal or not: how much of a guess is right cannot be measured.
bool are_equal_in_constant_time(std::string_view a, std::string_view b);

// Bytes that nobody can guess, of the system.
std::string random_bytes(std::size_t count);

}  // namespace isobar
