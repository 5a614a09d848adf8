// Checksums of bytes: XXH64 for files, CRC-32C for TensorBoard's records.
//
// Checksums of files find accidents (flipped bits, lost tails, half-written blocks), not forgery, so a fast 64-bit hash
// is enough: XXH64 reads several gigabytes a second in plain C++ on any machine, a tenth of the cost of SHA-256, misses
// an accident with probability 2^-64, and `xxhsum -c` can repeat the check without isobar.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace isobar {

// CRC-32C (Castagnoli; reflected polynomial 0x82F63B78): crc32c("123456789") = 0xe3069283. `previous` is the checksum
// of the bytes before these: crc32c(b, crc32c(a)) = crc32c(a + b).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t previous = 0);

// XXH64 with seed 0 of a sequence of bytes, passed in pieces of any size.
class Xxh64 {
 public:
  Xxh64();
  void update(std::span<const std::byte> bytes);
  std::uint64_t value() const;  // of all bytes so far; more may follow

 private:
  void absorb(const std::byte* stripe);

  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, 32> pending_;  // the first total_ % 32 bytes: the stripe that is not full yet
  std::uint64_t total_ = 0;
};

std::uint64_t xxh64(std::span<const std::byte> bytes);

// XXH64 of a file's contents, read in pieces. Error if the file cannot be read.
std::uint64_t xxh64_of_file(const std::filesystem::path& path);

}  // namespace isobar
