// Sockets of the meeting (comm/meeting.h): opening, connecting, sending and receiving without waiting.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/files/descriptor.h"

struct addrinfo;

namespace isobar {

using Socket = Descriptor;

// False where the other end is gone, or has not read for so long that its buffer is full.
bool send_all(int socket, std::string_view bytes);

enum class Received : std::uint8_t { some, nothing, end };
// What has come, at most `most` bytes of it. At the end errno says why, 0 where the other end has closed.
Received receive_some(int socket, std::string& bytes, std::size_t most = 4096);

// Whether such an error of a connection says that the other host cannot be reached (any more).
bool is_error_of_unreachable(int error);

// Messages go at once. A host that does not answer for `seconds_unreachable` is found by the system, also where nothing
// is sent: the connection then ends with an error.
void keep_alive(int socket, double seconds_unreachable);

struct AddressesDeleter {
  void operator()(addrinfo* addresses) const;
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;
Addresses addresses_of(const std::string& host);  // null where they are not known

// A connection, or none with what the system says. Tries all addresses for two seconds each.
Socket connect_to(const addrinfo* addresses, int port, std::string& why);

// Raises the soft limit of open files where `needed` are to be open beside those that are. Throws Error where the host
// does not allow so many.
void allow_open_files(int needed, const std::string& for_whom);

}  // namespace isobar
