// The host of a process, and the addresses at which other hosts reach it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace isobar {

// Identifies this host, whatever its name: the boot id of the kernel, and the network namespace. Processes with the
// same identity reach each other at 127.0.0.1.
std::string host_identity();

// Whether all are on one host.
bool are_on_one_host(std::span<const std::string> identities);

// A process's place among those of its host, in the order of their ranks.
struct PlaceOnHost {
  int local_rank = 0, local_ranks = 1;
  int host = 0;  // number of the host, in the order of the hosts' first ranks
};
// The place of each rank, from the identities of the ranks' hosts.
std::vector<PlaceOnHost> places_on_hosts(std::span<const std::string> identities);

// A network interface with one of its addresses.
struct Interface {
  std::string name, address;
  bool is_running = true, is_loopback = false;
};

std::vector<Interface> interfaces_of_this_host();

// The addresses at which other hosts may reach this one, the most likely first: `own` (the address of its name) if it
// is among them, then IPv4, then IPv6. Loopback, link-local addresses, container bridges and interfaces that are not
// running are left out. `chosen` selects interfaces as NCCL_SOCKET_IFNAME does: "ib,eth" by the beginnings of their
// names, "=eth0" by the name, "^docker" all except these; empty: any.
std::vector<std::string> reachable_addresses(std::span<const Interface> interfaces, const std::string& own,
                                             const std::string& chosen);

// The same for this host, selected by ISOBAR_INTERFACE, else by NCCL_SOCKET_IFNAME. Throws Error if ISOBAR_INTERFACE
// selects none. 127.0.0.1 if there is no other.
std::vector<std::string> reachable_addresses();

}  // namespace isobar
