#include "comm/messages.h"

#include "kernels/common/check.h"
#include "kernels/common/number_text.h"

namespace isobar {
namespace {

// Of one text. The longest are the members of an irregular group among 8,192 ranks, and sentences with long paths.
constexpr std::size_t kMaxTextBytes = std::size_t{48} << 10;

void add_number(std::string& to, std::uint32_t number) {
  for (int shift = 0; shift < 32; shift += 8) to += static_cast<char>(number >> shift & 0xff);
}

std::uint32_t number_at(std::string_view bytes) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i)
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return number;
}

}  // namespace

const std::string& Message::text(std::size_t index) const {
  ISOBAR_CHECK(index < texts.size(), "a message of type ", static_cast<int>(type), " has ", texts.size(),
               " texts only");
  return texts[index];
}

std::int64_t Message::number(std::size_t index, std::int64_t min, std::int64_t max) const {
  const std::string& digits = text(index);
  const std::optional<std::int64_t> number = number_from<std::int64_t>(digits);
  ISOBAR_CHECK(number && *number >= min && *number <= max, "a message of type ", static_cast<int>(type),
               " has no number from ", min, " to ", max);
  return *number;
}

std::string to_wire(const Message& message, Seal* seal) {
  std::string body(1, static_cast<char>(message.type));
  for (const std::string& text : message.texts) {
    const std::string_view sent = std::string_view(text).substr(0, kMaxTextBytes);
    if (body.size() + 4 + sent.size() + kSealBytes > kMaxMessageBytes) break;
    add_number(body, static_cast<std::uint32_t>(sent.size()));
    body += sent;
  }
  if (seal != nullptr) body = seal->close(body);
  std::string wire;
  add_number(wire, static_cast<std::uint32_t>(body.size()));
  return wire + body;
}

std::optional<Message> MessageStream::next() {
  if (bytes_.size() < 4) return std::nullopt;
  const std::uint32_t length = number_at(bytes_);
  ISOBAR_CHECK(length >= 1 && length <= kMaxMessageBytes, "a message of ", length, " bytes");
  if (bytes_.size() < 4 + static_cast<std::size_t>(length)) return std::nullopt;
  std::string content = bytes_.substr(4, length);
  bytes_.erase(0, 4 + static_cast<std::size_t>(length));
  if (seal_) content = seal_->open(content);
  ISOBAR_CHECK(!content.empty(), "a message without a type");
  std::string_view body = content;
  Message message{.type = static_cast<std::uint8_t>(body[0])};
  body.remove_prefix(1);
  while (!body.empty()) {
    ISOBAR_CHECK(body.size() >= 4, "a message ends within a length");
    const std::uint32_t bytes = number_at(body);
    body.remove_prefix(4);
    ISOBAR_CHECK(bytes <= body.size(), "a message ends within a text");
    message.texts.emplace_back(body.substr(0, bytes));
    body.remove_prefix(bytes);
  }
  return message;
}

}  // namespace isobar
