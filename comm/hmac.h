// HMAC-SHA256 (RFC 2104, FIPS 180-4): proves the knowledge of a key without sending it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace isobar {

inline constexpr std::size_t kDigestBytes = 32;

std::string sha256(std::string_view bytes);                             // kDigestBytes
std::string hmac_sha256(std::string_view key, std::string_view bytes);  // kDigestBytes

// Takes the same time for equal and different texts, so that timing does not show how much of a guess is right.
bool are_equal_in_constant_time(std::string_view a, std::string_view b);

// Random bytes of the system that cannot be predicted.
std::string random_bytes(std::size_t count);

}  // namespace isobar
