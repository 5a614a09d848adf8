// What networks of convolutions share: which ports suit them, and the key `edge`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/keys.h"
#include "kernels/conv/conv.h"
#include "models/network.h"

namespace isobar {

// One word for all axes, or one for each: zeros, wrap. Null: zeros.
using EdgeWords = std::optional<std::vector<std::string>>;

Key edge_key(EdgeWords& edge);
// Throws Error for any other word.
void check_edge(const EdgeWords& edge, const KeyOrigins& origins);
std::vector<Edge> edges_of(const EdgeWords& edge);
std::vector<bool> wraps_of(const EdgeWords& edge);  // Reach::wraps

// Throws Error unless the ports are fields of one to three axes on one grid, for which there is the right number of
// words. network: its name with the article, "a CNN".
void check_field_ports(const char* network, const Ports& ports, const EdgeWords& edge);

// Throws Error where ranks would share the network: its layers have no parts.
void check_not_shared(const char* network, const Build& build);

}  // namespace isobar
