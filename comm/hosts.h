// Which host a process is on, and under which addresses others reach it.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace isobar {

// Tells this host from all others, whatever they are called: what the kernel drew at its start, and the network
// namespace. Processes with the same one reach each other at 127.0.0.1.
std::string host_identity();

// Whether all are of one host.
bool are_on_one_host(std::span<const std::string> identities);

// A process's place among those of its host, in the order of their ranks.
struct PlaceOnHost {
  int local_rank = 0, local_ranks = 1;
  int host = 0;  // of all hosts, in the order of their first ranks
};
// Of each rank, from their hosts.
std::vector<PlaceOnHost> places_on_hosts(std::span<const std::string> identities);

// A network interface with one of its addresses.
struct Interface {
  std::string name, address;
  bool is_running = true, is_loopback = false;
};

std::vector<Interface> interfaces_of_this_host();

// The addresses at which other hosts may reach this one, the likeliest first: `own` (what its name stands for) if that
// is one of them, then IPv4, then IPv6. Loopback, link-local addresses, bridges of containers and interfaces without a
// cable are none. `chosen` picks interfaces as NCCL_SOCKET_IFNAME does: "ib,eth" by the beginnings of their names,
// "=eth0" by the name, "^docker" all but these; empty: any.
std::vector<std::string> reachable_addresses(std::span<const Interface> interfaces, const std::string& own,
                                             const std::string& chosen);

// The same of this host. ISOBAR_INTERFACE chooses, else NCCL_SOCKET_IFNAME. Throws Error where ISOBAR_INTERFACE leaves
// none. 127.0.0.1 where there is no other.
std::vector<std::string> reachable_addresses();

}  // namespace isobar
