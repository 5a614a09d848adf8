#include "engine/parameters.h"

#include <cmath>
#include <numbers>
#include <string_view>

#include "kernels/common/checked_size.h"
#include "kernels/common/math.h"
#include "kernels/common/rng.h"
#include "kernels/elementwise.h"

namespace isobar {
namespace {

constexpr std::int64_t kAlignment = 64;  // elements: 128 bytes of bf16, so that every parameter suits any vector load

constexpr std::int64_t kMostElements = std::int64_t{1} << 59;  // their bytes can be counted in any dtype

std::int64_t aligned(std::int64_t n) {
  return round_up(n, kAlignment);
}

// FNV-1a: the random stream of a parameter follows from its name.
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// Uniform in (0, 1] with 32 bits, and a standard normal by Box and Muller (1958), one Philox block each.
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return (random_bits(seed, stream, index) + 1.0) * 0x1p-32;
}

double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const Philox4 bits = philox4x32(seed, stream, index);
  const double radius = std::sqrt(-2 * std::log((bits.word[0] + 1.0) * 0x1p-32));
  return radius * std::cos(2 * std::numbers::pi * (bits.word[1] * 0x1p-32));
}

double initial_value(const Init& init, std::uint64_t seed, std::uint64_t stream, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  switch (init.kind) {
    case Init::Kind::normal:
      return init.value * normal(seed, stream, i);
    case Init::Kind::uniform:
      return init.value * (2 * uniform(seed, stream, i) - 1);
    case Init::Kind::constant:
      break;
  }
  return init.value;
}

}  // namespace

std::int64_t Parameters::Entry::numel() const {
  return checked_product({static_cast<std::int64_t>(spec.names.size()), numel_of(spec.shape)}, spec.names[0]);
}

int Parameters::add(ParameterSpec spec) {
  ISOBAR_CHECK(!weights_.defined(), "parameter ", spec.names[0], " comes after allocate()");
  entries_.push_back({std::move(spec), 0});
  return static_cast<int>(entries_.size()) - 1;
}

void Parameters::lay_out() {
  std::int64_t offset = 0;
  for (const bool decay : {true, false}) {
    for (Entry& entry : entries_) {
      if (entry.spec.decay != decay) continue;
      entry.offset = offset;
      ISOBAR_CHECK(entry.numel() <= kMostElements - offset, "parameter ", entry.spec.names[0], " of shape ",
                   to_string(entry.spec.shape), " makes the model too large for any machine");
      offset += aligned(entry.numel());
    }
    if (decay) decay_end_ = offset;
  }
  total_ = offset;
  for (const Entry& entry : entries_) {
    std::int64_t part = entry.offset;
    for (const std::string& name : entry.spec.names) {
      named_.push_back({name, entry.spec.shape, part});
      part += numel_of(entry.spec.shape);
    }
    count_ += entry.numel();
  }
}

// The system grants more memory than it has, and ends the process when the memory is written: what cannot fit is
// refused here. fill() holds every weight in fp64 on the host.
void Parameters::check_memory(DType dtype, DType activation, Device device) const {
  const bool on_host = device.kind != DeviceKind::cuda;
  const std::size_t buffers = size_of(dtype) * (on_host ? 2 : 1) + (on_host && is_16_bit(activation) ? 2 : 0);
  const auto needed = static_cast<std::size_t>(total_) * (sizeof(double) + buffers);
  ISOBAR_CHECK(needed <= machine_memory_bytes(), "the model is too large: its ", count_, " parameters need ",
               needed >> 30, " GiB of memory, and this machine has ", machine_memory_bytes() >> 30, " GiB");
}

void Parameters::allocate(DType activation, Device device, std::uint64_t seed) {
  lay_out();
  activation_ = activation;
  const DType dtype = accumulator_of(activation);
  check_memory(dtype, activation, device);
  {
    const MemoryScope scope("parameters");
    weights_ = Tensor::zeros({total_}, dtype, device);
    if (is_16_bit(activation)) compute_ = Tensor::zeros({total_}, activation, device);
  }
  {
    const MemoryScope scope("gradients");
    grads_ = Tensor::zeros({total_}, dtype, device);
  }
  fill(seed);
  for (const Entry& entry : entries_) {
    Shape shape = entry.spec.shape;
    shape[0] *= static_cast<std::int64_t>(entry.spec.names.size());
    const Tensor& source = entry.spec.compute_copy && compute_.defined() ? compute_ : weights_;
    leaves_.push_back(make_leaf(source.slice(entry.offset, shape), grads_.slice(entry.offset, shape)));
  }
}

void Parameters::fill(std::uint64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(total_), 0.0);
  for (const Entry& entry : entries_) {
    std::int64_t at = entry.offset;
    for (const std::string& name : entry.spec.names) {
      const std::uint64_t stream = hash_of(name);
      const std::int64_t n = numel_of(entry.spec.shape);
      for (std::int64_t i = 0; i < n; ++i, ++at)
        values[static_cast<std::size_t>(at)] = initial_value(entry.spec.init, seed, stream, i);
    }
  }
  weights_.set_values(values);
  round_to_compute();
}

std::vector<Parameters::Range> Parameters::ranges() const {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    ranges.push_back({leaves_[i].leaf().get(), entries_[i].offset, entries_[i].offset + entries_[i].numel()});
  return ranges;
}

void Parameters::begin_step() {
  for (const Tensor& leaf : leaves_) leaf.leaf()->touched = false;
}

void Parameters::finish_gradients() {
  for (const Tensor& leaf : leaves_) {
    if (leaf.leaf()->touched) continue;
    const Tensor& grad = leaf.leaf()->grad;
    ISOBAR_RUN(grad.device(), fill, {.n = grad.numel(), .dtype = grad.dtype(), .value = 0, .y = grad.data()},
               current_stream());
  }
}

void Parameters::round_to_compute() {
  if (!compute_.defined()) return;
  ISOBAR_RUN(device(), cast,
             {.n = total_,
              .x_dtype = weights_.dtype(),
              .y_dtype = compute_.dtype(),
              .x = weights_.data(),
              .y = compute_.data()},
             current_stream());
}

}  // namespace isobar
