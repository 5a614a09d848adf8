// Rank 0's port, at which the others find it.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/meeting.h"
#include "kernels/common/check.h"
#include "kernels/common/host_name.h"

namespace isobar {
namespace {

int port_of(int socket) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof bound;
  getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

// Listens there; 0, or the error.
int listen_at(Socket& socket, sockaddr_storage address, socklen_t size, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  const int on = 1, off = 0;
  if (address.ss_family == AF_INET6)
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = number;
  else
    reinterpret_cast<sockaddr_in&>(address).sin_port = number;
  socket = Socket(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return errno;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ss_family == AF_INET6) setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  constexpr int kWaiting = 65535;  // the system takes as many as it allows
  const bool is_well = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
                       ::listen(socket.get(), kWaiting) == 0;
  return is_well ? 0 : errno;
}

// IPv4 too; or IPv4 alone where there is no IPv6.
int listen_everywhere(Socket& socket, int port) {
  sockaddr_storage any = {};
  any.ss_family = AF_INET6;
  const int error = listen_at(socket, any, sizeof(sockaddr_in6), port);
  if (error == 0 || error == EADDRINUSE) return error;
  any.ss_family = AF_INET;
  return listen_at(socket, any, sizeof(sockaddr_in), port);
}

}  // namespace

MeetingPort::MeetingPort(std::string address, int port, int ports) : address_(std::move(address)) {
  const Addresses addresses = address_.empty() ? nullptr : addresses_of(address_);
  ISOBAR_CHECK(address_.empty() || addresses != nullptr, "the meeting: the address of rank 0, ", address_,
               ", cannot be resolved");
  sockaddr_storage own = {};
  if (addresses != nullptr) std::memcpy(&own, addresses->ai_addr, addresses->ai_addrlen);
  int error = 0;
  for (int i = 0; i < ports; ++i) {
    error = addresses == nullptr ? listen_everywhere(socket_, port + i)
                                 : listen_at(socket_, own, addresses->ai_addrlen, port + i);
    if (error != EADDRINUSE) break;
  }
  const std::string where = address_.empty() ? host_name() : address_;
  const std::string range = ports > 1 ? concat("ports ", port, " to ", port + ports - 1) : concat("port ", port);
  ISOBAR_CHECK(error != EADDRINUSE, "the meeting: ", range, " of ", where, ports > 1 ? " are" : " is",
               " taken by another process; set MASTER_PORT to a free one");
  ISOBAR_CHECK(error != EADDRNOTAVAIL, "the meeting: ", where, " is no address of ", host_name(),
               ", where rank 0 is; set MASTER_ADDR to one");
  ISOBAR_CHECK(error == 0, "the meeting: cannot listen at ", range, " of ", where, ": ", std::strerror(error));
  port_ = port_of(socket_.get());
}

std::string MeetingPort::text() const {
  return address_.empty() ? concat("port ", port_, " of ", host_name(), " (all its addresses)")
                          : concat(address_, ':', port_);
}

}  // namespace isobar
