// Activation recomputation (Chen et al. 2016, "Training deep nets with sublinear memory cost").
#include "engine/tape.h"

namespace isobar {

std::vector<Tensor> recompute(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body,
                              const std::vector<Tensor>& inputs) {
  Tape* tape = Tape::active();
  if (tape == nullptr) return body(inputs);

  std::vector<Tensor> outputs;
  {
    const TapeScope off(nullptr);
    outputs = body(inputs);
  }
  std::vector<Tensor*> recorded;
  for (Tensor& output : outputs) recorded.push_back(&output);
  tape->record("recompute", inputs, recorded, [body, inputs](Gradients& gradients, const std::vector<Tensor>& dy) {
    // Private leaves stand for the inputs, so that the inner backward pass ends at them.
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
  });
  return outputs;
}

}  // namespace isobar
