// Messages on the connections of the meeting (comm/meeting.h): a type and texts. On the wire, little-endian:
//
//   u32 bytes that follow | u8 type | { u32 bytes | the text } ...
//
// With a seal (comm/challenge.h) everything after the first number is sealed, and that number includes the seal's
// bytes. Bytes from outside are not trusted: a message with a length of more than kMaxMessageBytes is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/challenge.h"

namespace isobar {

inline constexpr std::size_t kMaxMessageBytes = std::size_t{1} << 16;

struct Message {
  std::uint8_t type = 0;
  std::vector<std::string> texts = {};

  // Throw Error if there is no such text, or if it is no whole number from `least` to `most`.
  const std::string& text(std::size_t index) const;
  std::int64_t number(std::size_t index, std::int64_t min, std::int64_t max) const;
};

// The bytes of a message. Texts are cut if they are too long together.
std::string to_wire(const Message& message, Seal* seal = nullptr);

// Cuts a stream of bytes into messages.
class MessageStream {
 public:
  explicit MessageStream(std::optional<Seal> seal = {}) : seal_(std::move(seal)) {}
  void add(std::string_view bytes) { bytes_ += bytes; }
  // The next whole message; none if more bytes are needed. Throws Error if the bytes are no message: the stream cannot
  // be used any more.
  std::optional<Message> next();

 private:
  std::optional<Seal> seal_;
  std::string bytes_;
};

}  // namespace isobar
