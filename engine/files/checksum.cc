#include "engine/files/checksum.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/files/reader.h"

namespace isobar {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc32c_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) != 0 ? 0x82f63b78u : 0u);
    table[byte] = remainder;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrc32cTable = make_crc32c_table();

// XXH64's constants and steps, named as in its specification.
constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5u;

static_assert(std::endian::native == std::endian::little, "load() reads little-endian numbers");
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

constexpr std::uint64_t xxh_round(std::uint64_t lane, std::uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous) {
  std::uint32_t crc = ~previous;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kCrc32cTable[(crc ^ std::to_integer<std::uint32_t>(byte)) & 0xffu];
  }
  return ~crc;
}

Xxh64::Xxh64() : lanes_{kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1} {}

void Xxh64::absorb(const std::byte* stripe) {
  for (int i = 0; i < 4; ++i) lanes_[i] = xxh_round(lanes_[i], load<std::uint64_t>(stripe + 8 * i));
}

void Xxh64::update(std::span<const std::byte> bytes) {
  const std::size_t stripe = pending_.size();
  const std::size_t waiting = total_ % stripe;
  total_ += bytes.size();
  if (waiting > 0) {
    const std::size_t taken = std::min(bytes.size(), stripe - waiting);
    std::copy_n(bytes.begin(), taken, pending_.begin() + waiting);
    bytes = bytes.subspan(taken);
    if (waiting + taken < stripe) return;
    absorb(pending_.data());
  }
  for (; bytes.size() >= stripe; bytes = bytes.subspan(stripe)) absorb(bytes.data());
  std::copy(bytes.begin(), bytes.end(), pending_.begin());
}

std::uint64_t Xxh64::value() const {
  std::uint64_t hash = kPrime5;
  if (total_ >= pending_.size()) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = (hash ^ xxh_round(0, lane)) * kPrime1 + kPrime4;
  }
  hash += total_;
  const std::byte* at = pending_.data();
  const std::byte* end = at + total_ % pending_.size();
  for (; end - at >= 8; at += 8) {
    hash = std::rotl(hash ^ xxh_round(0, load<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (load<std::uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) hash = std::rotl(hash ^ (std::to_integer<std::uint64_t>(*at) * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::uint64_t xxh64(std::span<const std::byte> bytes) {
  Xxh64 hash;
  hash.update(bytes);
  return hash.value();
}

std::uint64_t xxh64_of_file(const std::filesystem::path& path) {
  Xxh64 hash;
  read_file_in_pieces(path, [&](std::span<const std::byte> piece) { hash.update(piece); });
  return hash.value();
}

}  // namespace isobar
