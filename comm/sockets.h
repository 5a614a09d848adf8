// Sockets of the meeting (comm/meeting.h): nonblocking open, connect, send and receive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/files/descriptor.h"

struct addrinfo;

namespace isobar {

using Socket = Descriptor;

// False if the other end is gone, or has not read for so long that the buffer is full.
bool send_all(int socket, std::string_view bytes);

enum class Received : std::uint8_t { some, nothing, end };
// The bytes that have arrived, at most `most`. At the end errno has the reason; it is 0 if the other end has closed.
Received receive_some(int socket, std::string& bytes, std::size_t max_bytes = 4096);

// Whether bytes have arrived that were not received yet, or the other end has closed.
bool has_input(int socket);

// Whether this error of a connection means that the other host cannot be reached (any more).
bool is_error_of_unreachable(int error);

// Turns off delays of small messages. The system detects a host that does not answer for `seconds_unreachable`, even if
// nothing is sent: the connection then ends with an error.
void keep_alive(int socket, double seconds_unreachable);

struct AddressesDeleter {
  void operator()(addrinfo* addresses) const;
};
using Addresses = std::unique_ptr<addrinfo, AddressesDeleter>;
Addresses addresses_of(const std::string& host);  // null if the name cannot be resolved

// A connection, or none with the reason in `why`. Tries all addresses, each for two seconds.
Socket connect_to(const addrinfo* addresses, int port, std::string& why);

// Raises the soft limit of open files so that `needed` more can be opened. Throws Error if the host does not allow that
// many.
void allow_open_files(int needed, const std::string& for_whom);

}  // namespace isobar
