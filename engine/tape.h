// The tape: reverse-mode differentiation in a few pages.
//
// While a TapeScope lives, every op with a tracked input appends a Node: its name, its inputs, what it saved, and a
// function that turns the gradients of its outputs into gradients of its inputs. backward() walks the nodes once from
// the last to the first and drops each when it is done, so that activations die as early as they can.
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

// What a node must remember of a tensor to give it a gradient: everything but the values.
struct Target {
  std::uint64_t id = 0;
  Shape shape;
  DType dtype = DType::fp32;
  Device device;
  std::shared_ptr<Leaf> leaf;

  Target(const Tensor& x);  // NOLINT: implicit, so that ops can pass tensors
  bool tracked() const { return id != 0; }
};

// The gradients on their way back, handed to every node's backward function.
class Gradients {
 public:
  // Where a node adds its gradient of x: a buffer, and whether it holds something already. False when none is wanted.
  struct Slot {
    Tensor tensor;
    Grad mode = Grad::overwrite;
    explicit operator bool() const { return tensor.defined(); }
  };

  // A slot for the gradient of x, in x's dtype (a leaf: in its buffer's dtype).
  Slot slot(const Target& x);
  // Hands over a whole buffer as the gradient of x: adopted when it is the first, else added. x's shape, any dtype.
  void give(const Target& x, Tensor gradient);
  // The dtype in which the op that made x reads its gradient: x's own, or a narrower one that it rounds it to. A
  // gradient that is given in it saves the pass that rounds, and the bits of all others stay what they are.
  DType read_in(const Target& x) const;

 private:
  friend class Tape;
  Tensor take(const Target& y);  // the gradient that has arrived at y, or an undefined tensor
  void widen(const Target& x);   // the gradient that has arrived at x, to add to it
  std::unordered_map<std::uint64_t, Tensor> arrived_;
  std::unordered_map<std::uint64_t, DType> read_in_;  // where it is not the tensor's own
};

// Turns the gradients of a node's outputs (undefined where none has arrived; at least one has) into those of its
// inputs.
using Backward = std::function<void(Gradients& gradients, const std::vector<Tensor>& dy)>;

struct Node {
  const char* name;
  std::vector<Target> inputs;  // the tracked ones
  std::vector<Tensor> saved;   // what the node keeps alive, for the report
  std::vector<Target> outputs;
  Backward backward;
  std::optional<DType> reads_in;  // what `backward` rounds the gradients of all outputs to before it does anything else
};

class Tape {
 public:
  // Every op calls this when it has run. It appends a node to the active tape and makes the outputs tracked; where no
  // tape is active or no input is tracked, it does nothing. `inputs` are all tensors that `backward` may give a
  // gradient to. `backward` captures what it needs by value; a Target in place of a Tensor where only the gradient's
  // destination is needed, so that no activation lives longer than it must. An op that says `reads_in` takes gradients
  // in the outputs' dtype and in this one.
  static void record(const char* name, std::initializer_list<const Tensor*> inputs, std::vector<Tensor> saved,
                     std::initializer_list<Tensor*> outputs, Backward backward, std::optional<DType> reads_in = {}) {
    record(name, std::span(inputs.begin(), inputs.size()), std::move(saved), std::span(outputs.begin(), outputs.size()),
           std::move(backward), reads_in);
  }
  static void record(const char* name, std::span<const Tensor* const> inputs, std::vector<Tensor> saved,
                     std::span<Tensor* const> outputs, Backward backward, std::optional<DType> reads_in = {});

  // During backward(), `hook` is called with every leaf that this pass gives a gradient to, once, when the gradient is
  // complete: no node with that leaf among its inputs is left. On a GPU the kernels that write it have then been
  // launched on the current stream, but may not have run. Leaves that this pass gives nothing are left out. A recompute
  // node tells the leaves of its body when it has returned.
  void on_ready(std::function<void(const Leaf&)> hook) { on_ready_ = std::move(hook); }

  // Starts from dL/dy = `upstream` (y's shape and dtype; undefined: ones) and fills every leaf's buffer. The buffer of
  // `upstream` is taken over, and ops work in it: whoever needs it afterwards passes a copy.
  void backward(const Tensor& y, Tensor upstream = {});
  // The same from several outputs at once, with an upstream gradient each; those whose gradient is undefined are left
  // out. After an error, which a node's function may throw, the tape is empty, and the leaves that it led to hold
  // nothing of this step.
  void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& upstream);

  std::size_t size() const { return nodes_.size(); }
  void clear() { nodes_.clear(); }
  std::string report() const;  // one line a node: name, bytes it holds that no earlier line counted

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

// Whether record() would append a node: for ops that compute more where a backward pass will follow.
bool recording(std::initializer_list<const Tensor*> inputs);

// While it lives, the tracked tensors that ops of this thread read are listed in `read`, each once. recompute() learns
// in this way which parameters its body uses.
class ReadScope {
 public:
  explicit ReadScope(std::vector<Tensor>& read);
  ~ReadScope();
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;

 private:
  std::vector<Tensor>* previous_;
};

// Runs `body` without keeping its activations; they are computed again in the backward pass. `body` must be a pure
// function of its inputs (leaves it reads besides are fine; random masks must be keyed, as engine/ops.h has them).
// Error where it reads another tracked tensor that is not among its inputs: that one would get no gradient.
std::vector<Tensor> recompute(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                              const std::vector<Tensor>& inputs);

}  // namespace isobar
