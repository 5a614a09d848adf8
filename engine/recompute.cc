// Activation recomputation (Chen et al. 2016, "Training deep nets with sublinear memory cost").
#include <algorithm>
#include <utility>

#include "engine/tape.h"

namespace isobar {

std::vector<Tensor> recompute(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                              const std::vector<Tensor>& inputs) {
  if (Tape::active() == nullptr) return body(inputs);

  // The node's inputs are those of `body` and the parameters that it reads. The run without a tape finds these, so that
  // nobody has to list them. The outer tape then counts this node among those that add to their gradients.
  std::vector<Tensor> read, outputs;
  {
    const TapeScope off(nullptr);
    const ReadScope list(read);
    outputs = body(inputs);
  }
  for (const Tensor& output : outputs)  // returned unchanged: no op has read it
    if (output.tracked()) read.push_back(output);
  std::vector<const Tensor*> node_inputs;
  for (const Tensor& input : inputs) node_inputs.push_back(&input);
  for (const Tensor& x : read) {
    const auto same = [&x](const Tensor& input) { return input.id() == x.id(); };
    if (std::any_of(inputs.begin(), inputs.end(), same)) continue;
    ISOBAR_CHECK(x.leaf() != nullptr, "recompute: the body reads a tracked tensor of shape ", to_string(x.shape()),
                 " that is not among its inputs and would get no gradient");
    node_inputs.push_back(&x);
  }
  std::vector<Tensor*> node_outputs;
  for (Tensor& output : outputs) node_outputs.push_back(&output);
  Backward backward = [body, inputs](Gradients& gradients, const std::vector<Tensor>& dy) {
    // Private leaves replace the inputs, so that the inner backward pass ends at them.
    std::vector<Tensor> stand_ins;
    for (const Tensor& input : inputs)
      stand_ins.push_back(input.tracked() && !input.leaf()
                              ? make_leaf(input, Tensor::empty(input.shape(), input.dtype(), input.device()))
                              : input);
    Tape inner;
    std::vector<Tensor> again;
    {
      const TapeScope recording(inner);
      again = body(stand_ins);
    }
    inner.backward(again, dy);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (stand_ins[i].leaf() != inputs[i].leaf() && stand_ins[i].leaf()->touched)
        gradients.give(inputs[i], stand_ins[i].leaf()->grad);
  };
  Tape::record("recompute", node_inputs, inputs, node_outputs, std::move(backward));
  return outputs;
}

}  // namespace isobar
