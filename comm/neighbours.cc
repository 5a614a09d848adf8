#include "comm/neighbours.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "comm/hmac.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

// An abstract address: its first byte is zero, and it has no file.
struct Address {
  explicit Address(const std::string& name) {
    unix_.sun_family = AF_UNIX;
    std::ranges::copy(name, unix_.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&unix_); }
  socklen_t size = 0;

 private:
  sockaddr_un unix_ = {};
};

std::string hexadecimal(const std::string& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const char byte : bytes) {
    digits += kDigits[static_cast<unsigned char>(byte) >> 4];
    digits += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return digits;
}

}  // namespace

Neighbours::Neighbours(const std::string& key, const std::string& host_identity, int port, PlaceOnHost mine)
    : proof_(hmac_sha256(key, concat("told\n", host_identity, '\n', port))),
      prefix_("isobar-" + hexadecimal(hmac_sha256(key, concat("neighbours\n", host_identity, '\n', port)).substr(16))),
      mine_(mine),
      socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const Address own(name_of(mine_.local_rank));
  if (socket_.get() >= 0 && ::bind(socket_.get(), own.get(), own.size) != 0) socket_ = Socket();
}

std::string Neighbours::name_of(int local_rank) const {
  return concat(prefix_, '-', local_rank);
}

void Neighbours::tell() const {
  for (int local_rank = 0; local_rank < mine_.local_ranks; ++local_rank) {
    const Address other(name_of(local_rank));
    if (local_rank != mine_.local_rank)
      static_cast<void>(
          ::sendto(socket_.get(), proof_.data(), proof_.size(), MSG_DONTWAIT | MSG_NOSIGNAL, other.get(), other.size));
  }
}

bool Neighbours::has_been_notified() const {
  std::array<char, 64> buffer = {};
  bool is_told = false;
  for (ssize_t got = 0; (got = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT)) >= 0;)
    is_told |= are_equal_in_constant_time({buffer.data(), static_cast<std::size_t>(got)}, proof_);
  return is_told;
}

}  // namespace isobar
