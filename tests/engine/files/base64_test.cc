// Base64: the vectors of RFC 4648, every byte, and what is no base64.
#include "engine/files/base64.h"

#include <cstddef>
#include <string>
#include <vector>

#include "tests/harness/testing.h"

namespace isobar {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes;
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

}  // namespace

TEST_CASE("base64: the vectors of RFC 4648, both ways") {
  for (const auto& [plain, coded] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                     {"f", "Zg=="},
                                                                                     {"fo", "Zm8="},
                                                                                     {"foo", "Zm9v"},
                                                                                     {"foob", "Zm9vYg=="},
                                                                                     {"fooba", "Zm9vYmE="},
                                                                                     {"foobar", "Zm9vYmFy"}}) {
    CHECK(to_base64(bytes_of(plain)) == coded);
    CHECK(from_base64(coded) == bytes_of(plain));
  }
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::string text = to_base64(bytes_of(all));
  CHECK(text.substr(248) ==
        "uru8vb6/wMHCw8TFxsfIycrLzM3Oz9DR0tPU1dbX2Nna29zd3t/g4eLj5OXm5+jp6uvs7e7v8PHy8/T19vf4+fr7/P3+/w==");
  CHECK(from_base64(to_base64(bytes_of(all))) == bytes_of(all));
}

TEST_CASE("base64: another text is nothing") {
  for (const char* text :
       {"Z", "Zg=", "Zg", "Z===", "====", "Zg==Zg==", "Zh==", "Zm9=", "Zm 8", "Zm9\n", "=m9v", "Zm-v"}) {
    INFO(text);
    CHECK_FALSE(from_base64(text));
  }
}

}  // namespace isobar
