// A network, and what a config says of one. A run is made of two things, which two keys choose: a task (`task`,
// models/recipe.h) and a network (`model`). They meet at ports: a task says what goes in and what has to come out, and
// a network takes it or says in a sentence why not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/parallel.h"
#include "comm/vocabulary.h"
#include "engine/files/safetensors.h"
#include "engine/keys.h"
#include "models/build.h"
#include "models/pipeline_share.h"
#include "models/stage.h"
#include "models/tensor_start.h"

namespace isobar {

// Of one sample, in the parameters' dtype: fields [V, LAT, LON] to fields [V', LAT, LON], or to logits [classes].
// Fields may also have one axis, or three. Or tokens: ids [T] i32 to logits [T, vocabulary] of the tokens that follow.
struct Ports {
  Shape in, out;
  bool starts_at_zero = false;  // the output: a task adds it to something that is a good guess already
  // Of fields: a task lengthens their axes to multiples of NetworkRecipe::multiple(). For NetworkRecipe::fill alone: a
  // network has ports with the lengthened axes.
  bool may_be_padded = false;

  std::int64_t vocabulary = 0;  // ids are below it; 0: no tokens
  double share_of_pairs = 1;    // of tokens: of the pairs of a causal sample, those that documents leave in the mean

  bool are_fields() const { return out.size() == 3; }
  bool are_tokens() const { return vocabulary > 0; }
};

// Error for ports of tokens, of a network that takes none. network: "a ViT".
void refuse_tokens(const char* network, const Ports& ports);

// The last product of a network of tokens, of rows of its stream.
struct TokenHead {
  Tensor weight;  // [own columns, C]
  bool tf32 = false;
  // Numbers that a block keeps of a token for the backward pass, about, in the activation's dtype: what the size of
  // logits is measured by.
  std::int64_t kept_by_block = 0;
};

class Network {
 public:
  virtual ~Network() = default;
  Network(const Network&) = delete;  // its stages refer to it
  Network& operator=(const Network&) = delete;

  virtual std::string name() const = 0;  // for people: "ViT"
  virtual std::span<const Stage> stages() const = 0;
  const Ports& ports() const { return ports_; }

  // [B, in] -> [B, out], in the parameters' dtype; recorded on the active tape, if there is one. Error where the input
  // has another shape. Of fields, LAT counts the rows that are read here.
  Tensor operator()(const Tensor& input, const Pass& pass) const;
  // What the last stage gives: fields may come as rows of patches, [B·T, P·P·V'] (PatchOrder::channels_last). A loss
  // that can read these saves three passes over the fields.
  Tensor in_patches(const Tensor& input, const Pass& pass) const;
  virtual std::int64_t patch() const { return 0; }  // P; 0: the last stage gives [B, out]

  // Whether the stages take and give fields with their channels last, [B, S, V]: those of some networks of convolutions
  // do. S stands for the axes. The input may then be in the dtype that products read.
  virtual bool has_channels_last() const { return false; }
  // [B, S, V] -> [B, S, V'], whatever the stages take.
  Tensor in_channels_last(const Tensor& input, const Pass& pass) const;

  // Of a network that takes tokens, whose last stage gives logits [B·T, columns] in the activation's dtype: the columns
  // that this rank has, and how many classes all ranks have. The loss leaves out columns that stand for no token.
  virtual VocabPart logit_columns() const { return {{0, ports_.vocabulary}, ports_.vocabulary}; }

  // Of the same networks: the product of the last stage, which a loss may make some rows at a time instead. Error for
  // other networks.
  virtual TokenHead token_head() const;

  // Of a network that takes tokens: the tokens of a sample that are read here, ascending, as ranges. Context-parallel
  // ranks have others.
  virtual std::vector<Part> token_parts() const { return {{0, ports_.in[0]}}; }

  // The tensors of a file or folder of weights, under the names of this network's parameters: other programs may have
  // other names. Error as of Task::open_weights.
  virtual std::unique_ptr<TensorReader> open_weights(const std::filesystem::path& path) const;

  // Whether all that its layers pass on goes through a ResidualStream (models/layers/residual_stream.h). A network
  // without one computes every row of a sample here.
  virtual bool has_residual_stream() const { return false; }

  // What this rank has of a network that a pipeline has cut; null: all of it.
  const PipelineShare* share() const { return share_.get(); }
  void take(std::unique_ptr<const PipelineShare> share) { share_ = std::move(share); }

  // Of fields, the rows that are read here, in multiples of row_multiple().
  virtual Part rows() const { return {0, ports_.in[1]}; }
  virtual std::int64_t row_multiple() const { return 1; }

 protected:
  explicit Network(Ports ports) : ports_(std::move(ports)) {}

 private:
  Tensor run(const Tensor& input, const Pass& pass) const;

  Ports ports_;
  std::unique_ptr<const PipelineShare> share_;
};

// How a network of convolutions sees a grid, whatever its extents are.
struct Reach {
  std::int64_t points = 0;  // along each axis an output point depends on no input point that is farther away
  std::int64_t stride = 1;  // extents are multiples of it; an input that is moved by it gives the output moved by it
  std::vector<bool> wraps = {false};  // whether the ends of an axis are neighbours: one for all axes, or one for each

  bool wraps_along(std::size_t axis) const { return wraps.size() == 1 ? wraps[0] : wraps[axis]; }
};

// What a config says of a network: its keys, and the network of these sizes for any ports that suit it.
class NetworkRecipe {
 public:
  virtual ~NetworkRecipe() = default;

  // The table of its options, bound to this object.
  virtual KeyTable keys() = 0;

  // Whether a key is null, and left to the data; fill() gives it what suits these ports.
  virtual bool needs_data() const { return false; }
  virtual void fill(const Ports& ports, KeyFiller& filler) { static_cast<void>(ports), static_cast<void>(filler); }
  // Throws Error where the ports do not suit the options. `sizes`: what says how large samples are, "config key
  // img_size".
  virtual void check(const Ports& ports, const std::string& sizes) const = 0;
  // The extents of its fields are multiples of it. Its keys have values.
  virtual std::int64_t multiple() const;
  // None: the network takes the extents that it was trained on, and no others.
  virtual std::optional<Reach> reach() const { return std::nullopt; }
  // How the tensor `name`, of `shape` in files, begins with the weights in `file`, of a network for other ports or of
  // another size. By default it takes the tensor of the same name and shape.
  virtual TensorStart start_of(const std::string& name, const Shape& shape, const SafetensorsReader& file,
                               const FieldsMeaning& theirs, const FieldsMeaning& ours) const;
  // Makes it as small as it can be without leaving out a kind of layer, for a quick check; with `blocks` blocks at
  // least, where it has as many.
  virtual void shrink(std::int64_t blocks) { static_cast<void>(blocks); }

  // The network. Lists its parameters, which must be allocated before it is used. Throws Error where these ports do not
  // suit it, and where ranks cannot share it in the way asked for.
  virtual std::unique_ptr<Network> make(const Ports& ports, const Build& build) const = 0;
};

// The network of a recipe for these ports; of a pipeline, this rank's share of it. Error too where its stages do not
// list all of its parameters.
std::unique_ptr<Network> make_network(const NetworkRecipe& recipe, const Ports& ports, const Build& build);

// The names of a list of tasks or networks, for people: "forecast, classification".
template <class Entry>
std::string names_of(const std::vector<Entry>& list) {
  std::string names;
  for (const Entry& entry : list) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

struct NetworkEntry {
  const char* name;  // the value of the config key `model`
  std::shared_ptr<NetworkRecipe> (*make)();
};

// Every network. The default depends on the task (RecipeEntry::network).
const std::vector<NetworkEntry>& network_list();

// Throws Error, with the names that there are, for an unknown one. Without a name: the default.
std::shared_ptr<NetworkRecipe> make_network_recipe(const std::string& name = network_list().front().name);

}  // namespace isobar
