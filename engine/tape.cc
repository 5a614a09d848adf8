#include "engine/tape.h"

#include <algorithm>
#include <exception>
#include <iomanip>
#include <set>
#include <sstream>
#include <utility>

#include "kernels/common/run.h"
#include "kernels/elementwise.h"

namespace isobar {

static thread_local Tape* active_tape = nullptr;
static thread_local std::vector<Tensor>* listed_reads = nullptr;  // of the living ReadScope

void add_into(const Tensor& y, const Tensor& x) {
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
    ++x.leaf->arrivals;
    return {x.leaf->grad, mode};
  }
  const auto [entry, inserted] = arrived_.try_emplace(x.id);
  if (inserted) {
    const MemoryScope scope("gradients");
    entry->second = Tensor::empty(x.shape, x.dtype, x.device);
  } else {
    widen(x);
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
    ++x.leaf->arrivals;
    return;
  }
  const auto [entry, inserted] = arrived_.try_emplace(x.id);
  if (inserted) {
    entry->second = gradient.dtype() == dtype_wanted_for(x) ? std::move(gradient) : gradient.to(x.dtype);
  } else {
    widen(x);
    add_into(entry->second, gradient);
  }
}

DType Gradients::dtype_wanted_for(const Target& x) const {
  const auto found = dtypes_wanted_.find(x.id);
  return found == dtypes_wanted_.end() ? x.dtype : found->second;
}

void Gradients::widen(const Target& x) {
  Tensor& gradient = arrived_.at(x.id);
  gradient = gradient.to(x.dtype);
}

static bool any_tracked(std::span<const Tensor* const> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor* x) { return x->tracked(); });
}

static void list_reads(std::span<const Tensor* const> inputs) {
  for (const Tensor* x : inputs) {
    const auto same = [x](const Tensor& y) { return y.id() == x->id(); };
    if (x->tracked() && std::none_of(listed_reads->begin(), listed_reads->end(), same)) listed_reads->push_back(*x);
  }
}

void Tape::record(const char* name, std::span<const Tensor* const> inputs, std::vector<Tensor> saved,
                  std::span<Tensor* const> outputs, Backward backward, std::optional<DType> gradient_dtype) {
  if (listed_reads != nullptr) list_reads(inputs);
  if (active_tape == nullptr || !any_tracked(inputs)) return;
  Node node{name, {}, std::move(saved), {}, std::move(backward), gradient_dtype};
  for (const Tensor* input : inputs)
    if (input->tracked()) node.inputs.emplace_back(*input);
  for (Tensor* output : outputs) {
    output->id_ = next_tensor_id();
    output->leaf_ = nullptr;
    node.outputs.emplace_back(*output);
  }
  active_tape->nodes_.push_back(std::move(node));
}

namespace {

// Counts for each leaf the nodes that may still add to its gradient, and calls the hook when none is left. Nodes that
// are skipped, because no gradient has reached them, count too. Without a hook nothing is counted.
class LeafWatch {
 public:
  explicit LeafWatch(const std::function<void(const Leaf&)>& on_ready) : on_ready_(on_ready) {}

  // x is an input of a node that will run or be skipped.
  void expect(const Target& x) {
    if (!on_ready_ || !x.leaf) return;
    Uses& uses = uses_.try_emplace(x.leaf.get(), Uses{0, x.leaf->arrivals}).first->second;
    ++uses.left;
  }
  // That node has run or was skipped.
  void done(const Target& x) {
    if (!on_ready_ || !x.leaf) return;
    Uses& uses = uses_.at(x.leaf.get());
    if (--uses.left == 0 && x.leaf->arrivals != uses.arrivals) on_ready_(*x.leaf);
  }

 private:
  struct Uses {
    std::size_t left;
    std::uint64_t arrivals;  // before the pass
  };
  const std::function<void(const Leaf&)>& on_ready_;
  std::unordered_map<const Leaf*, Uses> uses_;
};

// An error in a pass leaves gradients to which an unknown part was added. While this object lives, an error resets the
// leaves that the pass may have added to: they hold nothing. So a caller that catches the error can continue.
class ForgetOnError {
 public:
  void expect(const Target& x) {
    if (x.leaf) leaves_.push_back(x.leaf);
  }
  ~ForgetOnError() {
    if (std::uncaught_exceptions() == before_) return;
    for (const std::shared_ptr<Leaf>& leaf : leaves_) leaf->touched = false;
  }

 private:
  const int before_ = std::uncaught_exceptions();
  std::vector<std::shared_ptr<Leaf>> leaves_;
};

}  // namespace

void Tape::backward(const Tensor& y, Tensor upstream) {
  if (!upstream.defined()) {
    upstream = Tensor::empty(y.shape(), y.dtype(), y.device());
    ISOBAR_RUN(y.device(), fill, {.n = upstream.numel(), .dtype = upstream.dtype(), .value = 1, .y = upstream.data()},
               current_stream());
  }
  backward(std::vector{y}, {std::move(upstream)});
}

void Tape::backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& upstream) {
  const TapeScope off(nullptr);
  LeafWatch leaves(on_ready_);
  ForgetOnError forget;
  const auto expect = [&](const Target& x) {
    leaves.expect(x);
    forget.expect(x);
  };
  for (const Node& node : nodes_)
    for (const Target& input : node.inputs) expect(input);
  for (const Tensor& output : outputs) expect(output);  // an output may be a leaf itself

  Gradients gradients;
  for (const Node& node : nodes_)
    if (node.gradient_dtype)
      for (const Target& output : node.outputs) gradients.dtypes_wanted_[output.id] = *node.gradient_dtype;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    ISOBAR_CHECK(outputs[i].tracked(), "backward() from a tensor that no recorded op has made");
    if (upstream[i].defined()) gradients.give(outputs[i], upstream[i]);
    leaves.done(outputs[i]);
  }
  // The nodes leave the tape first: after an error it has no node that ran in part.
  std::vector<Node> nodes = std::exchange(nodes_, {});
  while (!nodes.empty()) {
    const Node node = std::move(nodes.back());
    nodes.pop_back();
    std::vector<Tensor> dy;
    bool any = false;
    for (const Target& output : node.outputs) {
      dy.push_back(gradients.take(output));
      any = any || dy.back().defined();
    }
    if (any) node.backward(gradients, dy);
    for (const Target& input : node.inputs) leaves.done(input);
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

bool recording(std::initializer_list<const Tensor*> inputs) {
  return active_tape != nullptr && any_tracked(std::span(inputs.begin(), inputs.size()));
}

ReadScope::ReadScope(std::vector<Tensor>& read) : previous_(listed_reads) {
  listed_reads = &read;
}
ReadScope::~ReadScope() {
  listed_reads = previous_;
}

}  // namespace isobar
