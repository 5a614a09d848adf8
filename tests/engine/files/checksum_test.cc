// CRC-32C and XXH64 against published values, and in every way of cutting the input into pieces.
#include "engine/files/checksum.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>

#include "kernels/common/check.h"
#include "tests/harness/testing.h"

namespace isobar {
namespace {

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Bytes with no pattern that a wrong index could hide in.
std::string sample(std::size_t length) {
  std::string bytes(length, '\0');
  std::uint32_t state = 12345;
  for (char& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

TEST_CASE("crc32c has the check value of its definition", "[checksum]") {
  CHECK(crc32c(bytes_of_text("123456789")) == 0xe3069283u);
  CHECK(crc32c({}) == 0u);
  CHECK(crc32c(bytes_of_text(std::string(32, '\0'))) == 0x8a9136aau);  // RFC 3720, B.4
  CHECK(crc32c(bytes_of_text(std::string(32, '\xff'))) == 0x62a8ab43u);
  CHECK(crc32c(bytes_of_text("6789"), crc32c(bytes_of_text("12345"))) == 0xe3069283u);
}

TEST_CASE("xxh64 has the published values", "[checksum]") {
  CHECK(xxh64({}) == 0xef46db3751d8e999u);
  CHECK(xxh64(bytes_of_text("a")) == 0xd24ec4f1a98c6e5bu);
  CHECK(xxh64(bytes_of_text("abc")) == 0x44bc2cf5ad770999u);
  // Longer than one stripe of 32 bytes: the four lanes take part.
  CHECK(xxh64(bytes_of_text("Nobody inspects the spammish repetition")) == 0xfbcea83c8a378bf1u);
}

// Made by python's xxhash. What is left behind the stripes goes in as words of 8 bytes, one of 4, and single bytes.
TEST_CASE("xxh64 of every kind of tail is that of others", "[checksum]") {
  const std::map<std::size_t, std::uint64_t> expected{
      {3, 0xf919e068cb64d3c8u},  {4, 0xa49fb4c237d91555u},  {5, 0xa390bb666fedfacfu},  {7, 0xc1d014275dd36e28u},
      {8, 0x116104dbad0dccadu},  {12, 0xa3dca37762fbcc0bu}, {13, 0x5a41ba1ed1d9931du}, {31, 0xe48876647adb77c5u},
      {32, 0x048e142e2b522191u}, {36, 0x1c63f1349337a3c4u}, {44, 0x78126598815a06a6u}, {101, 0x78570bb1f31d8d82u}};
  for (const auto& [length, value] : expected) {
    INFO(length << " bytes");
    CHECK(xxh64(bytes_of_text(sample(length))) == value);
  }
}

TEST_CASE("xxh64 does not depend on how the bytes arrive", "[checksum]") {
  for (const std::size_t length : {1u, 31u, 32u, 33u, 64u, 100u}) {
    const std::string all = sample(length);
    const std::uint64_t whole = xxh64(bytes_of_text(all));
    for (std::size_t cut = 0; cut <= length; ++cut) {
      for (const std::size_t piece : {std::size_t{1}, std::size_t{5}, std::size_t{40}}) {
        Xxh64 hash;
        hash.update(bytes_of_text(all).first(cut));
        for (std::size_t at = cut; at < length; at += piece) {
          hash.update(bytes_of_text(all).subspan(at, std::min(piece, length - at)));
        }
        REQUIRE(hash.value() == whole);
      }
    }
  }
}

TEST_CASE("xxh64 sees every flipped bit and every lost byte", "[checksum]") {
  std::string bytes = sample(77);
  const std::uint64_t whole = xxh64(bytes_of_text(bytes));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    REQUIRE(xxh64(bytes_of_text(bytes)) != whole);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    REQUIRE(xxh64(bytes_of_text(bytes).first(length)) != whole);
  }
}

TEST_CASE("xxh64 of a file is that of its bytes", "[checksum]") {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / "isobar_checksum_test";
  const std::string bytes = sample((1 << 18) + 17);  // more than one piece
  std::ofstream(path, std::ios::binary) << bytes;
  CHECK(xxh64_of_file(path) == xxh64(bytes_of_text(bytes)));
  std::filesystem::remove(path);
  CHECK_THROWS_WITH(xxh64_of_file(path), testing::ContainsSubstring(path.string()));
  CHECK_THROWS_AS(xxh64_of_file(std::filesystem::temp_directory_path()), Error);
}

}  // namespace
}  // namespace isobar
