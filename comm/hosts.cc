#include "comm/hosts.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string_view>

#include "kernels/common/check.h"
#include "kernels/common/host_name.h"

namespace isobar {
namespace {

bool is_bridge(std::string_view interface) {
  constexpr std::array<std::string_view, 12> kOfThisHostOnly{"docker", "virbr",   "veth", "br-",   "podman",    "cni",
                                                             "cali",   "flannel", "lxc",  "lxdbr", "tailscale", "vnet"};
  return std::ranges::any_of(kOfThisHostOnly, [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

bool is_link_local(std::string_view address) {
  return address.starts_with("169.254.") || address.starts_with("fe80:");
}

// Whether the list, written as NCCL_SOCKET_IFNAME, selects the interface: by one of its items, or by none after '^'.
bool is_chosen(std::string_view interface, std::string_view list) {
  if (list.empty()) return true;
  const bool is_exclusion = list.starts_with('^');
  if (is_exclusion) list.remove_prefix(1);
  const bool is_exact = list.starts_with('=');
  if (is_exact) list.remove_prefix(1);
  bool is_named = false;
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    is_named |= is_exact ? interface == item : !item.empty() && interface.starts_with(item);
  }
  return is_named != is_exclusion;
}

std::string number_of(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return text;
}

std::string value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network = {};
  const bool has_network = ::stat("/proc/self/ns/net", &network) == 0;
  return concat(boot.empty() ? host_name() : boot, '/', has_network ? network.st_ino : 0);
}

bool are_on_one_host(std::span<const std::string> identities) {
  return std::ranges::all_of(identities, [&](const std::string& each) { return each == identities.front(); });
}

std::vector<PlaceOnHost> places_on_hosts(std::span<const std::string> identities) {
  struct Host {
    int number = 0, ranks = 0;
  };
  std::map<std::string, Host> hosts;
  std::vector<PlaceOnHost> places;
  for (const std::string& each : identities) {
    Host& host = hosts.try_emplace(each, Host{.number = static_cast<int>(hosts.size())}).first->second;
    places.push_back({.local_rank = host.ranks++, .host = host.number});
  }
  for (std::size_t i = 0; i < places.size(); ++i) places[i].local_ranks = hosts[identities[i]].ranks;
  return places;
}

std::vector<Interface> interfaces_of_this_host() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  std::vector<Interface> interfaces;
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    interfaces.push_back(
        {.name = each->ifa_name,
         .address = number_of(each->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)),
         .is_running = (each->ifa_flags & IFF_RUNNING) != 0,
         .is_loopback = (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  freeifaddrs(found);
  return interfaces;
}

std::vector<std::string> reachable_addresses(std::span<const Interface> interfaces, const std::string& own,
                                             const std::string& chosen) {
  const bool is_named = !chosen.empty() && !chosen.starts_with('^');  // a bridge that is named is used
  std::vector<std::string> addresses;
  for (const Interface& each : interfaces) {
    if (!is_chosen(each.name, chosen) || is_link_local(each.address)) continue;
    if (!is_named && (each.is_loopback || !each.is_running || is_bridge(each.name))) continue;
    addresses.push_back(each.address);
  }
  const auto place = [&](const std::string& address) {
    return address == own ? 0 : address.find(':') == std::string::npos ? 1 : 2;
  };
  std::ranges::stable_sort(addresses, {}, place);
  return addresses;
}

std::vector<std::string> reachable_addresses() {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  std::string own;
  if (getaddrinfo(host_name().c_str(), nullptr, &hints, &found) == 0) {
    own = number_of(found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
  }
  const std::vector<Interface> interfaces = interfaces_of_this_host();
  const std::string chosen = value_of("ISOBAR_INTERFACE");
  std::vector<std::string> addresses =
      reachable_addresses(interfaces, own, chosen.empty() ? value_of("NCCL_SOCKET_IFNAME") : chosen);
  std::string names;
  for (const Interface& each : interfaces) names += concat(names.empty() ? "" : ", ", each.name);
  ISOBAR_CHECK(chosen.empty() || !addresses.empty(), "ISOBAR_INTERFACE is ", chosen, ", and ", host_name(),
               " has no such interface that is up: it has ", names);
  if (addresses.empty()) addresses = reachable_addresses(interfaces, own, "");
  if (addresses.empty()) addresses.emplace_back("127.0.0.1");
  return addresses;
}

}  // namespace isobar
