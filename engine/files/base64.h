// Bytes as text: base64 of RFC 4648, section 4, with padding.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace isobar {

std::string to_base64(std::span<const std::byte> bytes);
// None for a text that to_base64 does not make.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace isobar
