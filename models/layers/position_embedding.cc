#include "models/layers/position_embedding.h"

namespace isobar {

PositionEmbedding::PositionEmbedding(const Build& build, const std::string& name, std::int64_t width)
    : parameters_(build.parameters),
      stream_(build),
      embedding_(build.parameters.add(
          {.names = {name}, .shape = {1, build.tokens, width}, .init = {Init::Kind::normal, 0.02}})) {}

Tensor PositionEmbedding::operator()(const Tensor& x) const {
  return add_row(x, parameters_.get(embedding_), stream_.first_token(), stream_.tokens());
}

}  // namespace isobar
