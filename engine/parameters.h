// The parameters of a model: one flat buffer for the weights, one for the gradients, one (16-bit training) for the
// rounded copy that the products read, and a list of the named tensors in them.
//
// Matrices come first, so that weight decay applies to a prefix of the buffer. Within the matrices, and within the
// rest, parameters with the same Sharing are contiguous: a section. A section is cut into buckets; ranks exchange a
// bucket as one.
//
// Frozen parameters come last, behind all that are trained, in sections of their own without buckets. The buffer of the
// gradients ends before them.
// A stacked parameter is several named tensors one after the other, used as one. The fused query, key and value
// projection is an example: a checkpoint has three tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/memory_order.h"
#include "engine/tensor.h"

namespace isobar {

// The initial values of a parameter. They depend on (seed, name) only.
struct Init {
  enum class Kind : std::uint8_t { constant, normal, uniform } kind = Kind::constant;
  double value = 0;  // the constant, the standard deviation, or the bound of U(-value, value)
};

// How the ranks that split a model (tensor parallel) hold a parameter. It decides over which ranks its gradient is
// summed, and how often its norm counts.
enum class Sharing : std::uint8_t {
  copy,             // every rank holds all of it, and computes its whole gradient
  copy_of_partial,  // every rank holds all of it; its gradient comes from the rank's own rows of the activations only
  shard             // every rank holds a part of it
};
inline constexpr std::size_t kSharings = 3;

// The part of a tensor that this rank holds: elements [begin, end) along one axis of its shape in files, 0 (rows) or 1
// (columns). Default: the whole tensor.
struct Shard {
  int axis = 0;
  std::int64_t begin = 0, end = -1;  // end -1: the whole axis
};

struct ParameterSpec {
  std::vector<std::string> names;  // more than one: stacked along the first axis
  Shape shape;                     // of each of them, in full, as in files
  Init init;
  bool decay = false;         // weight decay applies (weight matrices)
  bool compute_copy = false;  // products read it in the activations' dtype
  Sharing sharing = Sharing::copy;
  Shard shard = {};  // of each of them: the same heads of q, k and v
  // Of the axes in memory. Initial values do not depend on it. With channels_last a shard is of rows.
  MemoryOrder order = MemoryOrder::as_in_files;
};

// One named tensor within the flat buffers.
struct NamedParameter {
  std::string name;
  Shape shape;              // of the part that this rank holds, in memory
  std::int64_t offset = 0;  // elements
  Shape full_shape;         // in files
  Shard shard;              // begin and end are set
  MemoryOrder order = MemoryOrder::as_in_files;
  bool frozen = false;
  std::int64_t numel() const { return numel_of(shape); }
};

// Indices [begin, end) of `total` that this rank has of something that ranks share: heads 0 to 3 of 8.
struct Dealt {
  std::string what;   // "heads"
  std::string group;  // of ranks that share them: "tp"
  std::int64_t begin = 0, end = 0, total = 0;
};

// Elements [first, end) of the flat buffers.
struct FlatRange {
  std::int64_t first = 0, end = 0;
  std::int64_t size() const { return end - first; }
};

// How the buffers are cut into buckets, and each bucket of a section into equal slices.
struct BucketPlan {
  // Min size of a bucket. The last bucket of a section holds the rest.
  std::size_t bytes = std::size_t{25} << 20;
  std::array<std::int64_t, kSharings> slices = {1, 1, 1};       // number of slices, by Sharing
  std::array<std::int64_t, kSharings> tied_slices = {1, 1, 1};  // the same for tied parameters
};

// Handles of parameters (Parameters::add).
using Weights = std::vector<int>;
// Concatenates lists.
Weights joined(std::initializer_list<Weights> lists);

class Parameters {
 public:
  // Adds a parameter to the list; returns its handle for get(). All calls come before allocate().
  int add(ParameterSpec spec);

  // Freezes the parameters whose names fit one of the patterns (kernels/common/name_pattern.h): their tensors are
  // untracked, and nothing changes their weights. Call it after the last add() and before allocate(). Throws Error for
  // a pattern that no name fits, with the nearest names; for one that fits only some names of a stacked parameter; and
  // if no parameter is left to train.
  void freeze(const std::vector<std::string>& patterns);
  // All of them, of a model that is only applied: it has no gradients, and zeros until its weights are read.
  void freeze_all();

  // Ranks that hold other parts of the network hold its other parameters: of those that are not among `held` this rank
  // has no element. `tied`: those of `held` that ranks at both ends of a pipeline hold; their gradient is the sum of
  // both. Call it after the last add() and before allocate().
  void hold_only(const Weights& held, const Weights& tied);

  // For people: what ranks share, each once (`what`), in the order in which layers note it.
  void note_dealt(Dealt dealt);
  const std::vector<Dealt>& dealt() const { return dealt_; }

  // Makes the buffers and fills the weights. `activation` is the dtype of products: fp32, bf16, fp16 or fp64. Error if
  // the buffers are larger than this machine's memory.
  void allocate(DType activation, Device device, std::uint64_t seed, const BucketPlan& plan = {});

  // The tensor to compute with: a leaf; stacked parts are one tensor; in the activations' dtype if it has a compute
  // copy.
  const Tensor& get(int handle) const { return leaves_[static_cast<std::size_t>(handle)]; }

  // Number of calls of add(): handles are 0 to handles() - 1.
  int handles() const { return static_cast<int>(entries_.size()); }
  // Of a stacked parameter: the first name.
  const std::string& name_of(int handle) const;
  // Number of elements that this rank holds, without padding; known before allocate().
  std::int64_t held() const;
  std::int64_t held_trained() const;  // of those that are not frozen
  const std::vector<NamedParameter>& named() const { return named_; }
  std::int64_t count() const { return count_; }          // elements of the whole model, without padding
  std::int64_t frozen_count() const;                     // of these, those of frozen parameters
  std::int64_t decay_end() const { return decay_end_; }  // elements [0, decay_end) decay
  DType dtype() const { return weights_.dtype(); }
  DType activation_dtype() const { return activation_; }
  Device device() const { return weights_.device(); }

  const Tensor& weights() const { return weights_; }  // [n], fp32 or fp64; padding is zero
  const Tensor& grads() const { return grads_; }      // [elements before the frozen parameters]
  const Tensor& compute() const { return compute_; }  // [n] in 16 bits, or undefined
  Tensor weight(const NamedParameter& p) const { return weights_.slice(p.offset, p.shape); }
  // Of a parameter that is not frozen.
  Tensor grad(const NamedParameter& p) const { return grads_.slice(p.offset, p.shape); }

  // The buffers in order, padding included, as ranges of parameters with the same Sharing, tied or not, trained or
  // frozen.
  struct Section {
    Sharing sharing = Sharing::copy;
    FlatRange range;
    bool frozen = false;
    bool tied = false;
  };
  const std::vector<Section>& sections() const { return sections_; }

  // The trained part of the buffers, in order, as buckets of whole leaves, for those leaves of which this rank holds
  // elements. Padding at its end makes a bucket's size a multiple of 64 times the plan's slices: all slices are equal
  // and aligned for any vector load.
  struct Bucket {
    Sharing sharing = Sharing::copy;
    FlatRange range;
    std::vector<int> handles;  // of its leaves, in reverse order
    bool tied = false;
  };
  const std::vector<Bucket>& buckets() const { return buckets_; }

  void begin_step();        // the next gradients overwrite
  void finish_gradients();  // sets gradients to zero that this step has not touched
  void round_to_compute();  // call it after the weights were changed from outside

 private:
  struct Entry {
    ParameterSpec spec;
    Shape shape;  // of the part that this rank holds of each name, in memory
    std::int64_t offset = 0;
    bool frozen = false, tied = false;
    std::int64_t numel() const;
  };

  void lay_out(const BucketPlan& plan, std::size_t element);
  std::vector<int> handles_of(Sharing sharing, const std::function<bool(const Entry&)>& are_wanted) const;
  void lay_out_frozen(const std::vector<int>& handles);
  static void check_room_for(const Entry& entry, std::int64_t at);
  void lay_out_section(const Section& section, const std::vector<int>& handles, const BucketPlan& plan,
                       std::size_t element);
  void list_names();
  void check_memory(DType dtype, DType activation, Device device) const;
  void fill(std::uint64_t seed);

  std::vector<Entry> entries_;  // in the order of add()
  std::vector<Dealt> dealt_;
  std::vector<NamedParameter> named_;
  std::vector<Section> sections_;
  std::vector<Bucket> buckets_;
  std::vector<Tensor> leaves_;
  std::int64_t count_ = 0, total_ = 0, decay_end_ = 0;
  std::int64_t trained_end_ = 0;  // elements [trained_end_, total_) are frozen
  DType activation_ = DType::fp32;
  Tensor weights_, grads_, compute_;
};

}  // namespace isobar
