// The tape: reverse-mode differentiation in a few pages.
//
// While a TapeScope lives, every op with a tracked input appends a Node: its name, its inputs, what it saved, and a
// function that turns the gradients of its outputs into gradients of its inputs. backward() visits the nodes once, from
// the last to the first, and deletes each when it is done, so that activations are freed as early as possible.
//
//     Tape tape;
//     { TapeScope recording(tape);  loss = relative_l2(model(x), target); }
//     tape.backward(loss);
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/tensor.h"
#include "kernels/common/grad.h"

namespace isobar {

// What a node keeps of a tensor to give it a gradient: everything but the values.
struct Target {
  std::uint64_t id = 0;
  Shape shape;
  DType dtype = DType::fp32;
  Device device;
  std::shared_ptr<Leaf> leaf;

  Target(const Tensor& x);  // NOLINT: implicit, so that ops can pass tensors
  bool tracked() const { return id != 0; }
};

// The gradients during a backward pass. Every node's backward function gets them.
class Gradients {
 public:
  // Where a node adds its gradient of x: a buffer, and whether it already holds something. False if no gradient is
  // wanted.
  struct Slot {
    Tensor tensor;
    Grad mode = Grad::overwrite;
    explicit operator bool() const { return tensor.defined(); }
  };

  // A slot for the gradient of x, in x's dtype (for a leaf: in its buffer's dtype).
  Slot slot(const Target& x);
  // Passes a whole buffer as the gradient of x (x's shape, any dtype): taken over if it is the first, else added.
  void give(const Target& x, Tensor gradient);
  // The dtype that x's producer wants its gradient in: x's dtype, or a narrower one. A gradient in the narrower dtype
  // saves the rounding pass and changes no bits of the others.
  DType dtype_wanted_for(const Target& x) const;

 private:
  friend class Tape;
  Tensor take(const Target& y);  // removes and returns y's gradient; undefined if none has arrived
  void widen(const Target& x);   // gives x's gradient so far x's own dtype, to add to it
  std::unordered_map<std::uint64_t, Tensor> arrived_;
  std::unordered_map<std::uint64_t, DType> dtypes_wanted_;  // only if it is not the tensor's own
};

// Turns the gradients of a node's outputs (undefined if none has arrived; at least one has) into those of its inputs.
using Backward = std::function<void(Gradients& gradients, const std::vector<Tensor>& dy)>;

struct Node {
  const char* name;
  std::vector<Target> inputs;  // the tracked ones
  std::vector<Tensor> saved;   // what the node keeps alive, for the report
  std::vector<Target> outputs;
  Backward backward;
  // The dtype that `backward` rounds the gradients of all outputs to first.
  std::optional<DType> gradient_dtype;
};

class Tape {
 public:
  // Every op calls this after it has run. It appends a node to the active tape and makes the outputs tracked; without
  // an active tape or a tracked input it does nothing. `inputs` are all tensors that `backward` may give a gradient to.
  // `backward` captures what it needs by value. If it needs only the gradient's destination it captures a Target, not a
  // Tensor, so that no activation lives too long. An op with `gradient_dtype` takes gradients in the outputs' dtype and
  // in this one.
  static void record(const char* name, std::initializer_list<const Tensor*> inputs, std::vector<Tensor> saved,
                     std::initializer_list<Tensor*> outputs, Backward backward,
                     std::optional<DType> gradient_dtype = {}) {
    record(name, std::span(inputs.begin(), inputs.size()), std::move(saved), std::span(outputs.begin(), outputs.size()),
           std::move(backward), gradient_dtype);
  }
  static void record(const char* name, std::span<const Tensor* const> inputs, std::vector<Tensor> saved,
                     std::span<Tensor* const> outputs, Backward backward, std::optional<DType> gradient_dtype = {});

  // During backward(), `hook` is called once for every leaf that this pass gives a gradient to, when the gradient is
  // complete: no node that is left has that leaf among its inputs. On a GPU the kernels that write it are then launched
  // on the current stream, but may not have run. Leaves without a gradient in this pass are left out. A recompute node
  // reports the leaves of its body when it has returned.
  void on_ready(std::function<void(const Leaf&)> hook) { on_ready_ = std::move(hook); }

  // Starts from dL/dy = `upstream` (y's shape and dtype; undefined: ones) and fills every leaf's buffer. The buffer of
  // `upstream` is taken over, and ops write to it: to keep the values, pass a copy.
  void backward(const Tensor& y, Tensor upstream = {});
  // The same from several outputs at once, with an upstream gradient each; outputs with an undefined gradient are left
  // out. If a node's function throws, the tape is empty afterwards, and the leaves that it led to hold nothing of this
  // step.
  void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& upstream);

  std::size_t size() const { return nodes_.size(); }
  void clear() { nodes_.clear(); }
  std::string report() const;  // a line per node: name, and bytes it holds that no earlier line counted

  static Tape* active();  // the tape that ops of this thread record on, or null

 private:
  friend class TapeScope;
  std::vector<Node> nodes_;
  std::function<void(const Leaf&)> on_ready_;
};

// Makes a tape the active one of this thread while it lives; null stops recording.
class TapeScope {
 public:
  explicit TapeScope(Tape* tape);
  explicit TapeScope(Tape& tape) : TapeScope(&tape) {}
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  Tape* previous_;
};

// y += x, as gradients are added up: no tape records it. Both have as many elements, on y's device.
void add_into(const Tensor& y, const Tensor& x);

// Whether record() would append a node. Some ops compute more if a backward pass will follow.
bool recording(std::initializer_list<const Tensor*> inputs);

// While it lives, the tracked tensors that ops of this thread read are appended to `read`, each once. recompute() finds
// the parameters of its body in this way.
class ReadScope {
 public:
  explicit ReadScope(std::vector<Tensor>& read);
  ~ReadScope();
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;

 private:
  std::vector<Tensor>* previous_;
};

// Runs `body` without keeping its activations; the backward pass computes them again. `body` must be a pure function of
// its inputs. It may also read leaves; random masks must have keys (engine/ops.h). Error if it reads another tracked
// tensor that is not among its inputs: that tensor would get no gradient.
std::vector<Tensor> recompute(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                              const std::vector<Tensor>& inputs);

}  // namespace isobar
