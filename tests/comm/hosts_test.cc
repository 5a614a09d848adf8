// Hosts told apart, places on them, and which of a host's addresses others may use.
#include "comm/hosts.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/common/check.h"
#include "kernels/common/host_name.h"
#include "tests/harness/environment_variable.h"
#include "tests/harness/kept.h"
#include "tests/harness/testing.h"

using namespace isobar;
using isobar::testing::ContainsSubstring;
using isobar::testing::EnvironmentVariable;

namespace {

using Texts = std::vector<std::string>;

const std::vector<Interface> kNode{
    {.name = "lo", .address = "127.0.0.1", .is_loopback = true},
    {.name = "lo", .address = "::1", .is_loopback = true},
    {.name = "bmc0", .address = "169.254.3.1"},
    {.name = "docker0", .address = "172.17.0.1"},
    {.name = "cni-podman0", .address = "10.88.0.1"},
    {.name = "ib1", .address = "10.9.0.7", .is_running = false},
    {.name = "eth0", .address = "fe80::1%eth0"},
    {.name = "eth0", .address = "2001:db8::7"},
    {.name = "eth0", .address = "192.168.1.7"},
    {.name = "ib0", .address = "10.4.0.7"},
};

}  // namespace

TEST_CASE("hosts: one host is told by its identity, not by its name") {
  CHECK(host_identity() == host_identity());
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network = {};
  REQUIRE(::stat("/proc/self/ns/net", &network) == 0);
  CHECK(host_identity() == concat(boot.empty() ? host_name() : boot, '/', network.st_ino));
  CHECK(are_on_one_host(Texts{"boot1/1", "boot1/1"}));
  CHECK(!are_on_one_host(Texts{"boot1/1", "boot1/1", "boot2/1"}));
  CHECK(!are_on_one_host(Texts{"boot1/1", "boot1/2"}));
  CHECK(!are_on_one_host(Texts{"boot1/1", "boot2/1", "boot1/1"}));
}

TEST_CASE("hosts: ranks have places among those of their host") {
  const std::vector<PlaceOnHost> places = places_on_hosts(Texts{"a", "b", "a", "a", "b"});
  REQUIRE(places.size() == 5);
  const std::vector<int> local{0, 0, 1, 2, 1}, of{3, 2, 3, 3, 2}, host{0, 1, 0, 0, 1};
  for (std::size_t i = 0; i < 5; ++i) {
    CHECK(places[i].local_rank == local[i]);
    CHECK(places[i].local_ranks == of[i]);
    CHECK(places[i].host == host[i]);
  }
}

TEST_CASE("hosts: addresses that others can reach, the likeliest first") {
  CHECK(reachable_addresses(kNode, "127.0.1.1", "") == Texts{"192.168.1.7", "10.4.0.7", "2001:db8::7"});
  CHECK(reachable_addresses(kNode, "10.4.0.7", "") == Texts{"10.4.0.7", "192.168.1.7", "2001:db8::7"});
  CHECK(reachable_addresses(kNode, "2001:db8::7", "").front() == "2001:db8::7");
  const std::vector<Interface> six{kNode[1], kNode[6], kNode[7]};
  CHECK(reachable_addresses(six, "", "") == Texts{"2001:db8::7"});
}

TEST_CASE("hosts: interfaces are chosen as by NCCL_SOCKET_IFNAME") {
  CHECK(reachable_addresses(kNode, "", "ib") == Texts{"10.9.0.7", "10.4.0.7"});  // what is named is meant
  CHECK(reachable_addresses(kNode, "", "=ib0,eth1") == Texts{"10.4.0.7"});
  CHECK(reachable_addresses(kNode, "", "=ib,eth").empty());
  CHECK(reachable_addresses(kNode, "", ",ib,,") == Texts{"10.9.0.7", "10.4.0.7"});  // an empty name is nobody's
  CHECK(reachable_addresses(kNode, "10.4.0.7", "ib").front() == "10.4.0.7");
  CHECK(reachable_addresses(kNode, "", "ib0,docker") == Texts{"172.17.0.1", "10.4.0.7"});
  CHECK(reachable_addresses(kNode, "", "^eth,ib1") == Texts{"10.4.0.7"});
  CHECK(reachable_addresses(kNode, "", "^=eth") == Texts{"192.168.1.7", "10.4.0.7", "2001:db8::7"});
  CHECK(reachable_addresses(kNode, "", "wlan").empty());
}

TEST_CASE("hosts: this host has an interface of its own, at the address that ranks of one host use") {
  const std::vector<Interface> interfaces = interfaces_of_this_host();
  const auto own = std::ranges::find(interfaces, "127.0.0.1", &Interface::address);
  REQUIRE(own != interfaces.end());
  CHECK(own->is_loopback);
  CHECK(own->is_running);
  CHECK(own->name != "");
  for (const Interface& each : interfaces)  // of IPv4 and IPv6, and of nothing else
    CHECK(each.address.find_first_of(".:") != std::string::npos);
}

TEST_CASE("hosts: a network inside the host is no way to it, unless it is named") {
  for (const char* name : {"docker0", "virbr0", "veth3f", "br-5a1c", "podman0", "cni0", "cali12", "flannel.1", "lxcbr0",
                           "lxdbr0", "tailscale0", "vnet2"}) {
    INFO(name);
    const std::vector<Interface> both{{.name = name, .address = "10.0.0.1"}, {.name = "en0", .address = "10.0.0.2"}};
    CHECK(reachable_addresses(both, "", "") == Texts{"10.0.0.2"});
    CHECK(reachable_addresses(both, "", "^en") == Texts{});
    CHECK(reachable_addresses(both, "", name) == Texts{"10.0.0.1"});
  }
  CHECK(reachable_addresses(kNode, "", "lo") == Texts{"127.0.0.1", "::1"});
}

TEST_CASE("hosts: ISOBAR_INTERFACE counts before NCCL_SOCKET_IFNAME, and must name one that is there") {
  const EnvironmentVariable ours("ISOBAR_INTERFACE", "lo"), nccls("NCCL_SOCKET_IFNAME", "wlan7");
  CHECK(reachable_addresses().front().starts_with("127."));
  const EnvironmentVariable absent("ISOBAR_INTERFACE", "wlan7,wlan8");
  CHECK_THROWS_WITH(reachable_addresses(), ContainsSubstring("ISOBAR_INTERFACE is wlan7,wlan8, and " + host_name() +
                                                             " has no such interface that is up: it has ") &&
                                               ContainsSubstring("lo"));
  const EnvironmentVariable none("ISOBAR_INTERFACE", nullptr);
  CHECK(!reachable_addresses().empty());  // NCCL's is no more than a hint
  const EnvironmentVariable loopback("NCCL_SOCKET_IFNAME", "lo");
  CHECK(reachable_addresses().front().starts_with("127."));
}

TEST_CASE("hosts: what the system lends for its interfaces and addresses is given back") {
  const testing::Kept kept =
      testing::kept_by(200, [] { CHECK(interfaces_of_this_host().size() + reachable_addresses().size() > 1); });
  CHECK(kept.bytes < 200 * 16);
  CHECK(kept.files == 0);
}
