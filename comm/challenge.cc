#include "comm/challenge.h"

#include <utility>

#include "comm/hmac.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

std::string text_of(std::uint64_t number) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

}  // namespace

std::string Seal::mask(std::string_view bytes) const {
  std::string masked(bytes);
  for (std::size_t at = 0; at < masked.size(); at += kDigestBytes) {
    const std::string stream = hmac_sha256(key_, concat("mask", text_of(number_), text_of(at)));
    for (std::size_t i = 0; i < kDigestBytes && at + i < masked.size(); ++i) masked[at + i] ^= stream[i];
  }
  return masked;
}

std::string Seal::proof_of(std::string_view bytes) const {
  return hmac_sha256(key_, concat("seal", text_of(number_), bytes)).substr(0, kSealBytes);
}

std::string Seal::close(std::string_view bytes) {
  std::string sealed = mask(bytes);
  sealed += proof_of(sealed);
  ++number_;
  return sealed;
}

std::string Seal::open(std::string_view sealed) {
  ISOBAR_CHECK(sealed.size() >= kSealBytes, "a message without a seal");
  const std::string_view bytes = sealed.substr(0, sealed.size() - kSealBytes);
  ISOBAR_CHECK(are_equal_in_constant_time(proof_of(bytes), sealed.substr(bytes.size())), "a broken seal");
  std::string opened = mask(bytes);
  ++number_;
  return opened;
}

Challenge::Challenge(std::string key, std::string random_of_rank, std::string random_of_first)
    : key_(std::move(key)), randoms_(std::move(random_of_rank) + std::move(random_of_first)) {}

std::string Challenge::hash(std::string_view purpose) const {
  return hmac_sha256(key_, concat(purpose, '\n', randoms_));
}

}  // namespace isobar
