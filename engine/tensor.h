// Tensor: a contiguous, row-major array on a device; a handle that shares its storage when copied.
//
// A tensor takes part in differentiation when it has an id: leaves (parameters) carry the buffer that their gradient
// goes to, results of recorded ops get a fresh id (engine/tape.h).
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

namespace isobar {

using Shape = std::vector<std::int64_t>;

std::int64_t numel_of(const Shape& shape);
std::size_t bytes_of(const Shape& shape, DType dtype);
std::string to_string(const Shape& shape);  // "[3, 24]"

struct Leaf;

std::uint64_t next_tensor_id();  // never 0, never the same twice in a process

class Tensor {
 public:
  Tensor() = default;

  // Uninitialised / zeroed memory.
  static Tensor empty(Shape shape, DType dtype, Device device);
  static Tensor zeros(Shape shape, DType dtype, Device device);
  // Over host memory of another owner, at least as large, which `memory` keeps alive (engine/storage.h).
  static Tensor over(std::shared_ptr<void> memory, Shape shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  // Of a dimension; -1 is the last one. Error where there is no such dimension.
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
    return static_cast<std::byte*>(storage_->data()) + offset_;
  }
  template <class T>
  T* data_as() const {
    ISOBAR_CHECK(dtype_of<T> == dtype_, "a tensor of ", name_of(dtype_), " is read as ", name_of(dtype_of<T>));
    return static_cast<T*>(data());
  }

  // The same elements (and the same place in the graph) under another shape; one size may be -1.
  Tensor view(Shape shape) const;
  // Elements [first, first + numel(shape)) as a tensor of their own. It would be outside the graph, where what is
  // computed from it learns nothing: of a tracked tensor that is an Error, and detach().slice() says that it is meant.
  Tensor slice(std::int64_t first, Shape shape) const;
  // The same values outside the graph.
  Tensor detach() const;

  // A copy, or itself when it is there already, or has that dtype. A copy is outside the graph: as for slice, that of a
  // tracked tensor is an Error.
  Tensor to(Device device) const;
  Tensor to(DType dtype) const;
  void copy_from(const Tensor& other);  // same numel and dtype, any device

  // Host values as doubles, and back (casting): for tests, checkpoints and logs, not for hot paths.
  std::vector<double> to_vector() const;
  void set_values(const std::vector<double>& values);
  double item() const;  // of a tensor of one element

  std::uint64_t id() const { return id_; }
  bool tracked() const { return id_ != 0; }
  const std::shared_ptr<Leaf>& leaf() const { return leaf_; }

 private:
  Tensor(std::shared_ptr<Storage> storage, Shape shape, DType dtype);
  void check_untracked(const char* what) const;

  friend class Tape;
  friend Tensor make_leaf(Tensor value, Tensor grad);

  std::shared_ptr<Storage> storage_;
  std::size_t offset_ = 0;  // bytes
  Shape shape_;
  std::int64_t numel_ = 0;
  DType dtype_ = DType::fp32;
  std::uint64_t id_ = 0;
  std::shared_ptr<Leaf> leaf_;
};

// Runs of elements within a tensor: run i begins at element first + i·stride.
struct Runs {
  std::int64_t first = 0, stride = 0;
};

// Copies `count` runs of `length` elements between two tensors of one dtype on one device. Error where a run lies
// outside its tensor, or where runs overlap in `to`. The memory of the two must not overlap.
void copy_runs(const Tensor& to, Runs to_runs, const Tensor& from, Runs from_runs, std::int64_t count,
               std::int64_t length);

// Where the gradient of a leaf is gathered.
struct Leaf {
  Tensor grad;
  Tensor rounded = {};         // of a parameter: the same values in the activation's dtype, where they are kept in it
  bool touched = false;        // the buffer holds something of this step already
  std::uint64_t arrivals = 0;  // gradients that have come since the leaf was made
};

// A tensor that gradients flow into: `grad` has the same numel, in the dtype gradients are accumulated in.
Tensor make_leaf(Tensor value, Tensor grad);

}  // namespace isobar
