// The contents of a TensorBoard event file: scalars and pictures by tag and step, and which steps of earlier files it
// hides.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/files/reader.h"
#include "kernels/common/check.h"

namespace isobar::testing {

// Iterates over the fields of a protobuf message; strings are views into `message`.
class ProtobufFields {
 public:
  explicit ProtobufFields(std::string_view message) : rest_(message) {}

  // The next field: its number and its bytes (for numbers also the value). False at the end.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    number = static_cast<int>(key >> 3);
    switch (key & 7) {
      case 0:
        value = varint();
        break;
      case 1:
        bytes = take(8);
        break;
      case 2:
        bytes = take(varint());
        break;
      case 5:
        bytes = take(4);
        break;
      default:
        throw_error("a protobuf field of wire type ", key & 7);
    }
    return true;
  }

  int number = 0;
  std::uint64_t value = 0;
  std::string_view bytes;

 private:
  std::string_view take(std::uint64_t count) {
    ISOBAR_CHECK(count <= rest_.size(), "a protobuf message ends within a field");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      result |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return result;
    }
  }

  std::string_view rest_;
};

struct TensorBoardEvents {
  using Key = std::pair<std::string, std::int64_t>;  // tag, step
  std::map<Key, float> scalars;
  std::map<Key, std::string> images;  // PNG
  std::int64_t purge_step = -1;       // steps of earlier files from this one on are hidden; -1: none

  explicit TensorBoardEvents(const std::filesystem::path& path) {
    const std::string file = read_file(path);
    for (std::size_t at = 0; at < file.size();) {
      std::uint64_t length = 0;
      ISOBAR_CHECK(file.size() - at >= 16, path.string(), ": ends within a record");
      std::memcpy(&length, file.data() + at, sizeof length);
      ISOBAR_CHECK(length <= file.size() - at - 16, path.string(), ": ends within a record");
      add(std::string_view(file).substr(at + 12, length));
      at += 16 + length;
    }
  }

 private:
  void add(std::string_view event) {
    std::int64_t step = 0;
    std::string_view summary;
    bool starts_session = false;
    for (ProtobufFields field(event); field.next();) {
      if (field.number == 2) step = static_cast<std::int64_t>(field.value);
      if (field.number == 5) summary = field.bytes;
      if (field.number == 7) starts_session = true;
    }
    if (starts_session) purge_step = step;
    for (ProtobufFields field(summary); field.next();)
      if (field.number == 1) add_value(field.bytes, step);
  }
  void add_value(std::string_view message, std::int64_t step) {
    std::string tag;
    for (ProtobufFields field(message); field.next();) {
      if (field.number == 1) tag = field.bytes;
      if (field.number == 2) std::memcpy(&scalars[{tag, step}], field.bytes.data(), sizeof(float));
      if (field.number == 4)
        for (ProtobufFields image(field.bytes); image.next();)
          if (image.number == 4) images[{tag, step}] = image.bytes;
    }
  }
};

}  // namespace isobar::testing
