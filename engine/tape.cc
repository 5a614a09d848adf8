#include "engine/tape.h"

#include <iomanip>
#include <set>
#include <sstream>

#include "kernels/elementwise.h"

namespace isobar {

static thread_local Tape* active_tape = nullptr;

// y += x, both on y's device.
static void add_into(const Tensor& y, const Tensor& x) {
  ISOBAR_RUN(y.device(), add,
             {.n = y.numel(),
              .a_dtype = y.dtype(),
              .b_dtype = x.dtype(),
              .y_dtype = y.dtype(),
              .a = y.data(),
              .b = x.data(),
              .y = y.data()},
             current_stream());
}

Target::Target(const Tensor& x) : id(x.id()), shape(x.shape()), dtype(x.dtype()), leaf(x.leaf()) {
  if (x.defined()) device = x.device();
}

Tensor Gradients::take(const Target& y) {
  const auto found = arrived_.find(y.id);
  if (found == arrived_.end()) return {};
  Tensor gradient = std::move(found->second);
  arrived_.erase(found);
  return gradient.view(y.shape);
}

Gradients::Slot Gradients::slot(const Target& x) {
  if (!x.tracked()) return {};
  if (x.leaf) {
    const Grad mode = x.leaf->touched ? Grad::accumulate : Grad::overwrite;
    x.leaf->touched = true;
    return {x.leaf->grad, mode};
  }
  const auto [entry, inserted] = arrived_.try_emplace(x.id);
  if (inserted) {
    const MemoryScope scope("gradients");
    entry->second = Tensor::empty(x.shape, x.dtype, x.device);
  }
  return {entry->second, inserted ? Grad::overwrite : Grad::accumulate};
}

void Gradients::give(const Target& x, Tensor gradient) {
  if (!x.tracked()) return;
  if (x.leaf) {
    if (x.leaf->touched)
      add_into(x.leaf->grad, gradient);
    else
      ISOBAR_RUN(x.device, cast,
                 {.n = gradient.numel(),
                  .x_dtype = gradient.dtype(),
                  .y_dtype = x.leaf->grad.dtype(),
                  .x = gradient.data(),
                  .y = x.leaf->grad.data()},
                 current_stream());
    x.leaf->touched = true;
    return;
  }
  const auto [entry, inserted] = arrived_.try_emplace(x.id);
  if (inserted)
    entry->second = gradient.to(x.dtype);
  else
    add_into(entry->second, gradient);
}

void Tape::record(const char* name, std::vector<Tensor> saved, const std::vector<Tensor*>& outputs, Backward backward) {
  Node node{name, std::move(saved), {}, std::move(backward)};
  for (Tensor* output : outputs) {
    output->id_ = next_tensor_id();
    output->leaf_ = nullptr;
    node.outputs.emplace_back(*output);
  }
  nodes_.push_back(std::move(node));
}

void Tape::backward(const Tensor& y, Tensor seed) {
  if (!seed.defined()) {
    seed = Tensor::empty(y.shape(), y.dtype(), y.device());
    ISOBAR_RUN(y.device(), fill, {.n = seed.numel(), .dtype = seed.dtype(), .value = 1, .y = seed.data()},
               current_stream());
  }
  backward(std::vector{y}, {std::move(seed)});
}

void Tape::backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& seeds) {
  const TapeScope off(nullptr);
  Gradients gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ISOBAR_CHECK(outputs[i].tracked(), "backward() from a tensor that no recorded op has made");
    if (seeds[i].defined()) gradients.give(outputs[i], seeds[i]);
  }
  while (!nodes_.empty()) {
    const Node node = std::move(nodes_.back());
    nodes_.pop_back();
    std::vector<Tensor> dy;
    bool any = false;
    for (const Target& output : node.outputs) {
      dy.push_back(gradients.take(output));
      any = any || dy.back().defined();
    }
    if (any) node.backward(gradients, dy);
  }
}

std::string Tape::report() const {
  std::set<const void*> counted;
  std::ostringstream out;
  std::size_t total = 0;
  out << std::fixed << std::setprecision(2);
  for (const Node& node : nodes_) {
    std::size_t bytes = 0;
    for (const Tensor& tensor : node.saved)
      if (tensor.defined() && counted.insert(tensor.data()).second) bytes += tensor.bytes();
    total += bytes;
    out << std::left << std::setw(24) << node.name << std::right << std::setw(10)
        << static_cast<double>(bytes) / (1 << 20) << " MiB\n";
  }
  out << std::left << std::setw(24) << "all" << std::right << std::setw(10) << static_cast<double>(total) / (1 << 20)
      << " MiB\n";
  return out.str();
}

Tape* Tape::active() {
  return active_tape;
}

TapeScope::TapeScope(Tape* tape) : previous_(active_tape) {
  active_tape = tape;
}
TapeScope::~TapeScope() {
  active_tape = previous_;
}

Tape* recording(std::initializer_list<const Tensor*> inputs) {
  if (active_tape == nullptr) return nullptr;
  for (const Tensor* input : inputs)
    if (input->tracked()) return active_tape;
  return nullptr;
}

}  // namespace isobar
