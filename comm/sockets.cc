#include "comm/sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/common/check.h"
#include "kernels/common/host_name.h"

namespace isobar {
namespace {

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

// Tries one address. Returns 0, or errno.
int connect_once(int socket, const sockaddr* address, socklen_t size) {
  constexpr int kMilliseconds = 2000;
  if (::connect(socket, address, size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd polled{socket, POLLOUT, 0};
  int error = ETIMEDOUT;
  socklen_t length = sizeof error;
  if (::poll(&polled, 1, kMilliseconds) > 0) getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

// If no process listens at a port, the system may assign that port to the very socket that connects to it.
bool is_connected_to_itself(int socket) {
  sockaddr_storage own = {}, other = {};
  socklen_t own_size = sizeof own, other_size = sizeof other;
  getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size);
  getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_size);
  return own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
}

}  // namespace

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

Received receive_some(int socket, std::string& bytes, std::size_t max_bytes) {
  char buffer[4096];
  const ssize_t received = ::recv(socket, buffer, std::min(max_bytes, sizeof buffer), MSG_DONTWAIT);
  if (received == 0) errno = 0;
  if (received > 0) bytes.assign(buffer, static_cast<std::size_t>(received));
  if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Received::nothing;
  return received > 0 ? Received::some : Received::end;
}

bool has_input(int socket) {
  pollfd polled{.fd = socket, .events = POLLIN, .revents = 0};
  return ::poll(&polled, 1, 0) > 0;
}

bool is_error_of_unreachable(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH;
}

void keep_alive(int socket, double seconds_unreachable) {
  constexpr int kProbes = 3;
  const int seconds = std::max(2, static_cast<int>(seconds_unreachable));
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / (2 * kProbes)));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * seconds);
}

void AddressesDeleter::operator()(addrinfo* addresses) const {
  freeaddrinfo(addresses);
}

Addresses addresses_of(const std::string& host) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  return Addresses(getaddrinfo(host.c_str(), nullptr, &hints, &found) == 0 ? found : nullptr);
}

Socket connect_to(const addrinfo* addresses, int port, std::string& why) {
  why = "the address cannot be resolved";
  for (const addrinfo* each = addresses; each != nullptr; each = each->ai_next) {
    sockaddr_storage address = {};
    std::memcpy(&address, each->ai_addr, each->ai_addrlen);
    if (each->ai_family == AF_INET6)
      reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(static_cast<std::uint16_t>(port));
    else
      reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<std::uint16_t>(port));
    Socket socket(::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int error = socket.get() < 0
                          ? errno
                          : connect_once(socket.get(), reinterpret_cast<const sockaddr*>(&address), each->ai_addrlen);
    if (error == 0 && !is_connected_to_itself(socket.get())) return socket;
    why = error == 0 ? "nobody listens" : std::strerror(error);
  }
  return Socket();
}

void allow_open_files(int needed, const std::string& for_whom) {
  constexpr int kOthers = 1024;  // of this process: data, libraries, devices, unknown connections
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = static_cast<rlim_t>(needed) + kOthers;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : std::min(wanted, limit.rlim_max);
  ISOBAR_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur > static_cast<rlim_t>(needed), for_whom,
               " needs ", needed, " open files, and ", host_name(), " allows ", limit.rlim_cur,
               ": raise its hard limit (ulimit -Hn)");
}

}  // namespace isobar
