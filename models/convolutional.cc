#include "models/convolutional.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace isobar {

Key edge_key(EdgeWords& edge) {
  return key("edge", edge,
             "what lies beyond the edges: zeros, or wrap (the other end), for all axes or one for each, as in "
             "[\"zeros\", \"wrap\"] for a globe's rows and columns; null: zeros")
      .also_called({"padding", "paddingmode"});
}

void check_edge(const EdgeWords& edge, const KeyOrigins& origins) {
  if (!edge) return;
  for (const std::string& word : *edge)
    ISOBAR_CHECK(word == "zeros" || word == "wrap", origins.where("edge"), " must be a list of zeros and wrap, not ",
                 word);
}

std::vector<Edge> edges_of(const EdgeWords& edge) {
  if (!edge) return {Edge::zeros};
  std::vector<Edge> edges;
  for (const std::string& word : *edge) edges.push_back(word == "wrap" ? Edge::wrap : Edge::zeros);
  return edges;
}

std::vector<bool> wraps_of(const EdgeWords& edge) {
  std::vector<bool> wraps;
  for (const Edge own : edges_of(edge)) wraps.push_back(own == Edge::wrap);
  return wraps;
}

void check_field_ports(const char* network, const Ports& ports, const EdgeWords& edge) {
  refuse_tokens(network, ports);
  const std::size_t axes = ports.in.size() - 1;
  const bool are_alike = std::equal(ports.in.begin() + 1, ports.in.end(), ports.out.begin() + 1, ports.out.end());
  ISOBAR_CHECK(are_alike, "config key model: ", network, " computes fields on the grid of its input, and cannot make ",
               to_string(ports.out), " of ", to_string(ports.in));
  ISOBAR_CHECK(axes >= 1 && axes <= 3, "config key model: ", network, " has one to three axes, and the samples ",
               to_string(ports.in), " have ", axes);
  ISOBAR_CHECK(!edge || edge->size() == 1 || edge->size() == axes, "config key edge: there are ",
               edge ? edge->size() : 0, " words for the ", axes, " axes of ", to_string(ports.in));
}

void check_not_shared(const char* network, const Build& build) {
  ISOBAR_CHECK(build.parallel.model.size() == 1, "tensor and context parallel: ranks cannot share ", network,
               "; use data parallel alone");
}

}  // namespace isobar
