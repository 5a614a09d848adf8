// How the ranks of a pipeline share a network (comm/pipeline.h): which stages make a piece, and what one rank has.
//
// A network is cut where it has a residual stream: behind its blocks, the stages that pass on {x, branch}
// (models/layers/residual_stream.h), or behind the embedding. One tensor goes over, x + branch, in the dtype of the
// stream. The next norm adds no branch then, and computes the same bits.
//
// How much work a stage is, and the shape of what goes over, are found by running the network on shapes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/parallel.h"
#include "models/build.h"
#include "models/stage.h"

namespace isobar {

class Network;
class NetworkRecipe;
struct Ports;

struct PipelineCut {
  std::vector<Part> pieces = {};   // stages of each
  std::vector<double> work = {};   // flops of each, in a forward pass of one sample on one rank
  std::vector<Part> blocks = {};   // of each
  std::vector<bool> is_tied = {};  // of each parameter (its handle): stages of several ranks list it
};

// The tensors between two stages as the one that goes over. Error for tensors of another kind.
Tensor joined_stream(const Tensors& between);
// The inverse, behind a block: x + branch as the next stage takes it (Residual::is_joined).
Tensors split_stream(const Tensor& joined);

class PipelineShare {
 public:
  // Cuts the network of this recipe, and takes the place of build.parallel in it. Error with the numbers if the network
  // has fewer blocks than there are pieces, or a list of blocks does not fit; for a network without a residual stream;
  // and for a tied parameter that is held by other ranks than both ends.
  PipelineShare(const NetworkRecipe& recipe, const Ports& ports, const Build& build);
  ~PipelineShare();

  const PipelineCut& cut() const { return cut_; }
  int chunks() const { return chunks_; }
  int pieces() const { return static_cast<int>(cut_.pieces.size()); }
  int piece_of(int chunk) const { return chunk * ranks_ + rank_; }
  // Whether what comes to this chunk was made by a block.
  bool follows_block(int chunk) const {
    const int piece = piece_of(chunk);
    return piece > 0 && cut_.blocks[static_cast<std::size_t>(piece)].begin > 0;
  }
  Part stages_of(int chunk) const { return cut_.pieces[static_cast<std::size_t>(piece_of(chunk))]; }

  // This rank's handles, and those of them that are tied.
  Weights held(std::span<const Stage> stages) const;
  Weights tied(std::span<const Stage> stages) const;

  // An uninitialised tensor for what `piece` passes on, of an input of the network with this shape and dtype.
  Tensor room_behind(int piece, const Shape& input, DType dtype, Device device) const;

 private:
  struct Shaped;
  struct Boundary {
    Shape shape;
    DType dtype = DType::fp32;
  };

  int rank_, ranks_, chunks_;
  PipelineCut cut_;
  std::unique_ptr<Shaped> shaped_;                             // this rank's network, whole, on shapes
  mutable std::map<Shape, std::vector<Boundary>> boundaries_;  // by the shape of an input
};

// Lines for people: the stages, blocks and work of every piece.
std::string to_text(const PipelineCut& cut, std::int64_t ranks);

}  // namespace isobar
