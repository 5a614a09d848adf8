#include "engine/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/common/checked_size.h"
#include "kernels/common/run.h"
#include "kernels/copy_strided.h"
#include "kernels/elementwise.h"

namespace isobar {

std::int64_t numel_of(const Shape& shape) {
  const std::optional<std::int64_t> n = product_of(shape);
  ISOBAR_CHECK(n, "a tensor of shape ", to_string(shape), " has an impossible size");
  return *n;
}

std::size_t bytes_of(const Shape& shape, DType dtype) {
  const std::int64_t element = static_cast<std::int64_t>(size_of(dtype));
  return static_cast<std::size_t>(checked_product({numel_of(shape), element}, "a tensor"));
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

std::uint64_t next_tensor_id() {
  static std::atomic<std::uint64_t> next{1};
  return next++;
}

Tensor::Tensor(std::shared_ptr<Storage> storage, Shape shape, DType dtype)
    : storage_(std::move(storage)), shape_(std::move(shape)), numel_(numel_of(shape_)), dtype_(dtype) {}

Tensor Tensor::empty(Shape shape, DType dtype, Device device) {
  auto storage = std::make_shared<Storage>(bytes_of(shape, dtype), device);
  return {std::move(storage), std::move(shape), dtype};
}

Tensor Tensor::over(std::shared_ptr<void> memory, Shape shape, DType dtype) {
  auto storage = std::make_shared<Storage>(std::move(memory), bytes_of(shape, dtype));
  return {std::move(storage), std::move(shape), dtype};
}

Tensor Tensor::zeros(Shape shape, DType dtype, Device device) {
  Tensor t = empty(std::move(shape), dtype, device);
  ISOBAR_RUN(device, fill, {.n = t.numel(), .dtype = dtype, .value = 0, .y = t.data()}, current_stream());
  return t;
}

Tensor Tensor::view(Shape shape) const {
  const auto unknown = std::find(shape.begin(), shape.end(), -1);
  if (unknown != shape.end()) {
    *unknown = 1;
    const std::int64_t known = numel_of(shape);
    *unknown = known > 0 ? numel_ / known : 0;
  }
  ISOBAR_CHECK(numel_of(shape) == numel_, "a tensor of shape ", to_string(shape_), " has no view ", to_string(shape));
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

Tensor Tensor::slice(std::int64_t first, Shape shape) const {
  const std::int64_t n = numel_of(shape);
  ISOBAR_CHECK(first >= 0 && n <= numel_ && first <= numel_ - n, n, " elements from ", first,
               " lie outside a tensor of shape ", to_string(shape_));
  check_untracked("slice");
  Tensor t = *this;
  t.offset_ += static_cast<std::size_t>(first) * size_of(dtype_);
  t.numel_ = n;
  t.shape_ = std::move(shape);
  return t;
}

void Tensor::be_operand() const {
  operands_asked_for->push_back({shape_, dtype_});
}

void Tensor::check_untracked(const char* what) const {
  ISOBAR_CHECK(!tracked(), "a ", what, " of a tracked tensor ", to_string(shape_),
               " gets no gradient: take it of detach() where that is meant");
}

Tensor Tensor::detach() const {
  Tensor t = *this;
  t.id_ = 0;
  t.leaf_ = nullptr;
  return t;
}

Tensor Tensor::to(Device device) const {
  if (device == this->device()) return *this;
  check_untracked("copy on another device");
  Tensor t = empty(shape_, dtype_, device);
  copy_bytes(t.data(), device, data(), this->device(), bytes());
  return t;
}

Tensor Tensor::to(DType dtype) const {
  if (dtype == dtype_) return *this;
  check_untracked("copy in another dtype");
  Tensor t = empty(shape_, dtype, device());
  ISOBAR_RUN(device(), cast, {.n = numel_, .x_dtype = dtype_, .y_dtype = dtype, .x = data(), .y = t.data()},
             current_stream());
  return t;
}

void Tensor::copy_from(const Tensor& other) {
  ISOBAR_CHECK(other.numel() == numel_ && other.dtype() == dtype_, "a tensor ", to_string(shape_), " of ",
               name_of(dtype_), " cannot be copied from ", to_string(other.shape()), " of ", name_of(other.dtype()));
  copy_bytes(data(), device(), other.data(), other.device(), bytes());
}

void copy_strided(const Tensor& to, StridedBlocks to_runs, const Tensor& from, StridedBlocks from_runs,
                  std::int64_t count, std::int64_t length) {
  ISOBAR_CHECK(to.dtype() == from.dtype() && to.device() == from.device(), "runs of ", name_of(from.dtype()), " on ",
               name_of(from.device().kind), " cannot be copied to ", name_of(to.dtype()), " on ",
               name_of(to.device().kind));
  if (count == 0 || length == 0) return;
  for (const auto& [tensor, runs] : {std::pair(&to, to_runs), std::pair(&from, from_runs)}) {
    const std::int64_t remaining = tensor->numel() - length - runs.first;  // number of elements after the first run
    const bool fits = length > 0 && count > 0 && length <= tensor->numel() && runs.first >= 0 && runs.stride >= 0 &&
                      remaining >= 0 && (count == 1 || runs.stride <= remaining / (count - 1));
    ISOBAR_CHECK(fits, count, " runs of ", length, " elements, every ", runs.stride, " from ", runs.first,
                 ", lie outside a tensor of shape ", to_string(tensor->shape()));
  }
  ISOBAR_CHECK(count == 1 || to_runs.stride >= length, "runs of ", length, " elements, every ", to_runs.stride,
               ", overlap where they are copied to");
  ISOBAR_RUN(to.device(), copy_strided,
             {.blocks = count,
              .length = length,
              .source_stride = from_runs.stride,
              .destination_stride = to_runs.stride,
              .dtype = to.dtype(),
              .source = from.detach().slice(from_runs.first, {length}).data(),
              .destination = to.detach().slice(to_runs.first, {length}).data()},
             current_stream());
}

std::vector<double> Tensor::to_vector() const {
  const Tensor host = detach().to(Device{});
  std::vector<double> out(static_cast<std::size_t>(numel_));
  visit_any(dtype_, [&]<class T>(Type<T>) {
    const T* x = static_cast<const T*>(host.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      if constexpr (size_of(dtype_of<T>) == 2)
        out[i] = static_cast<float>(x[i]);
      else
        out[i] = x[i];
    }
  });
  return out;
}

void Tensor::set_values(const std::vector<double>& values) {
  ISOBAR_CHECK(static_cast<std::int64_t>(values.size()) == numel_, values.size(), " values for a tensor of shape ",
               to_string(shape_));
  if (!holds_values(device())) return;
  Tensor host = device() == Device{} ? detach() : empty(shape_, dtype_, Device{});
  visit_any(dtype_, [&]<class T>(Type<T>) {
    T* x = static_cast<T*>(host.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if constexpr (size_of(dtype_of<T>) == 2)
        x[i] = T(static_cast<float>(values[i]));
      else
        x[i] = static_cast<T>(values[i]);
    }
  });
  if (!(device() == Device{})) copy_from(host);
}

double Tensor::item() const {
  ISOBAR_CHECK(numel_ == 1, "a tensor of shape ", to_string(shape_), " is not a single number");
  return to_vector()[0];
}

Tensor make_leaf(Tensor value, Tensor grad) {
  ISOBAR_CHECK(grad.numel() == value.numel(), "a leaf of shape ", to_string(value.shape()),
               " with a gradient of shape ", to_string(grad.shape()));
  value.id_ = next_tensor_id();
  value.leaf_ = std::make_shared<Leaf>(Leaf{.grad = std::move(grad)});
  return value;
}

Tensor make_frozen(Tensor value, Tensor rounded) {
  value.leaf_ = std::make_shared<Leaf>(Leaf{.grad = {}, .rounded = std::move(rounded)});
  return value;
}

}  // namespace isobar
