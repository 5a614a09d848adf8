// Messages on the connections of the meeting (comm/meeting.h): a type and texts. On the wire, little-endian:
//
//   u32 bytes that follow | u8 type | { u32 bytes | the text } ...
//
// With a seal (comm/challenge.h) what follows the first number is sealed, and its seal's bytes are counted.
// What comes from outside is believed in nothing: a message is at most kMostMessageBytes long, whatever it says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/challenge.h"

namespace isobar {

inline constexpr std::size_t kMostMessageBytes = std::size_t{1} << 16;

struct Message {
  std::uint8_t type = 0;
  std::vector<std::string> texts = {};

  // Throw Error where there is no such text, or no whole number from `least` to `most` in it.
  const std::string& text(std::size_t index) const;
  std::int64_t number(std::size_t index, std::int64_t least, std::int64_t most) const;
};

// As it travels. Texts are cut where they are too long together.
std::string to_wire(const Message& message, Seal* seal = nullptr);

// Cuts a stream of bytes into messages.
class MessageStream {
 public:
  explicit MessageStream(std::optional<Seal> seal = {}) : seal_(std::move(seal)) {}
  void add(std::string_view bytes) { bytes_ += bytes; }
  // The next whole message; none where more bytes are needed. Throws Error where the bytes are no message: the stream
  // is of no use any more.
  std::optional<Message> next();

 private:
  std::optional<Seal> seal_;
  std::string bytes_;
};

}  // namespace isobar
