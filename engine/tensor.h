// Tensor: a contiguous, row-major array on a device; a handle that shares its storage when copied.
//
// A tensor with an id takes part in differentiation. Leaves (parameters) have a buffer for their gradient; results of
// recorded ops get a new id (engine/tape.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "engine/storage.h"
#include "kernels/common/check.h"
#include "kernels/common/dtype.h"
#include "kernels/common/operands.h"

namespace isobar {

using Shape = std::vector<std::int64_t>;

std::int64_t numel_of(const Shape& shape);
std::size_t bytes_of(const Shape& shape, DType dtype);
std::string to_string(const Shape& shape);  // "[3, 24]"

struct Leaf;

std::uint64_t next_tensor_id();  // never 0, unique in a process

class Tensor {
 public:
  Tensor() = default;

  // Uninitialised / zeroed memory.
  static Tensor empty(Shape shape, DType dtype, Device device);
  static Tensor zeros(Shape shape, DType dtype, Device device);
  // Uses host memory of another owner, large enough for the shape; `memory` keeps it alive (engine/storage.h).
  static Tensor over(std::shared_ptr<void> memory, Shape shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  // Of a dimension; -1 is the last one. Error if it does not exist.
  std::int64_t size(int axis) const {
    const auto rank = static_cast<int>(shape_.size());
    ISOBAR_CHECK(axis >= -rank && axis < rank, "a tensor of shape ", to_string(shape_), " has no dimension ", axis);
    return shape_[static_cast<std::size_t>(axis < 0 ? rank + axis : axis)];
  }
  std::int64_t numel() const { return numel_; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel_) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const {
    ISOBAR_CHECK(defined(), "a tensor that is not there has no device");
    return storage_->device();
  }

  void* data() const {
    ISOBAR_CHECK(defined(), "a tensor that is not there has no data");
    if (operands_asked_for != nullptr) be_operand();
    return static_cast<std::byte*>(storage_->data()) + offset_;
  }
  template <class T>
  T* data_as() const {
    ISOBAR_CHECK(dtype_of<T> == dtype_, "a tensor of ", name_of(dtype_), " is read as ", name_of(dtype_of<T>));
    return static_cast<T*>(data());
  }

  // The same elements (and the same place in the graph) with another shape; one size may be -1.
  Tensor view(Shape shape) const;
  // Elements [first, first + numel(shape)) as a tensor that shares the memory. It is outside the graph: what is
  // computed from it gives no gradient. So a tracked tensor is an Error; detach().slice() says that this is meant.
  Tensor slice(std::int64_t first, Shape shape) const;
  // The same values outside the graph.
  Tensor detach() const;

  // A copy, or the tensor itself if it is already there, or already has that dtype. A copy is outside the graph: as
  // with slice, a tracked tensor is an Error.
  Tensor to(Device device) const;
  Tensor to(DType dtype) const;
  void copy_from(const Tensor& other);  // same numel and dtype, any device

  // Host values as doubles, and back (with conversion): for tests, checkpoints and logs, not for hot paths.
  std::vector<double> to_vector() const;
  void set_values(const std::vector<double>& values);
  double item() const;  // of a tensor of one element

  std::uint64_t id() const { return id_; }
  bool tracked() const { return id_ != 0; }
  const std::shared_ptr<Leaf>& leaf() const { return leaf_; }

 private:
  Tensor(std::shared_ptr<Storage> storage, Shape shape, DType dtype);
  void check_untracked(const char* what) const;
  void be_operand() const;

  friend class Tape;
  friend Tensor make_leaf(Tensor value, Tensor grad);
  friend Tensor make_frozen(Tensor value, Tensor rounded);

  std::shared_ptr<Storage> storage_;
  std::size_t offset_ = 0;  // bytes
  Shape shape_;
  std::int64_t numel_ = 0;
  DType dtype_ = DType::fp32;
  std::uint64_t id_ = 0;
  std::shared_ptr<Leaf> leaf_;
};

// Runs of elements in a tensor: run i begins at element first + i·stride.
struct StridedBlocks {
  std::int64_t first = 0, stride = 0;
};

// Copies `count` runs of `length` elements between two tensors of one dtype on one device. Error if a run is outside
// its tensor, or if runs overlap in `to`. The memory of the two tensors must not overlap.
void copy_strided(const Tensor& to, StridedBlocks to_runs, const Tensor& from, StridedBlocks from_runs,
                  std::int64_t count, std::int64_t length);

// The gradient buffer of a leaf.
struct Leaf {
  Tensor grad;  // undefined for a frozen parameter
  // For a parameter: the same values in the activations' dtype, if they are kept in it.
  Tensor rounded = {};
  bool touched = false;        // the buffer already holds something of this step
  std::uint64_t arrivals = 0;  // number of gradients since the leaf was made
};

// A tensor that gradients flow to. `grad` has the same numel, in the dtype in which gradients are accumulated.
Tensor make_leaf(Tensor value, Tensor grad);
// A parameter that no gradient flows to: an untracked tensor, which still has its rounded values (Leaf::rounded; may be
// undefined).
Tensor make_frozen(Tensor value, Tensor rounded);

}  // namespace isobar
