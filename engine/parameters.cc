#include "engine/parameters.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "kernels/common/checked_size.h"
#include "kernels/common/comma_list.h"
#include "kernels/common/math.h"
#include "kernels/common/name_pattern.h"
#include "kernels/common/rng.h"
#include "kernels/common/run.h"
#include "kernels/common/suggestions.h"
#include "kernels/cpu/parallel.h"
#include "kernels/elementwise.h"

namespace isobar {
namespace {

// In elements: 128 bytes of bf16, so that every parameter is aligned for any vector load.
constexpr std::int64_t kAlignment = 64;

constexpr std::int64_t kMaxElements = std::int64_t{1} << 59;  // their number of bytes fits in any dtype

std::int64_t aligned(std::int64_t n) {
  return round_up(n, kAlignment);
}

// FNV-1a: a parameter's name selects its stream of random numbers.
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// Uniform in (0, 1] with 32 bits, and a standard normal, one Philox block each.
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return (random_bits(seed, stream, index) + 1.0) * 0x1p-32;
}

double normal(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  const Philox4 bits = philox4x32(seed, stream, index);
  return to_normal(bits.word[0], bits.word[1]);
}

// The names, and the patterns of all names that begin alike: "blocks.*", "blocks.0.*", "blocks.0.attn.q.weight".
std::vector<std::string> names_and_beginnings(const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& name : names) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      all.push_back(name.substr(0, dot + 1) + "*");
    all.push_back(name);
  }
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());  // Clang 14, which fuzzes, lacks std::ranges::unique
  return all;
}

constexpr std::int64_t kCostOfNormal = 64;  // of an element, beside a copy's

// Of the part that this rank holds, in memory.
Shape shape_of_part(const ParameterSpec& spec) {
  Shape shape = spec.shape;
  shape[static_cast<std::size_t>(spec.shard.axis)] = spec.shard.end - spec.shard.begin;
  return shape_in_memory(shape, spec.order);
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
  return checked_product({static_cast<std::int64_t>(spec.names.size()), numel_of(shape)}, spec.names[0]);
}

int Parameters::add(ParameterSpec spec) {
  ISOBAR_CHECK(!weights_.defined(), "parameter ", spec.names[0], " comes after allocate()");
  Shard& shard = spec.shard;
  ISOBAR_CHECK(shard.axis >= 0 && static_cast<std::size_t>(shard.axis) < spec.shape.size() && shard.axis <= 1,
               "parameter ", spec.names[0], " of shape ", to_string(spec.shape), " has no parts along axis ",
               shard.axis);
  const auto axis = static_cast<std::size_t>(shard.axis);
  if (shard.end < 0) shard.end = spec.shape[axis];
  ISOBAR_CHECK(shard.begin >= 0 && shard.begin <= shard.end && shard.end <= spec.shape[axis], "parameter ",
               spec.names[0], " of shape ", to_string(spec.shape), " has no elements [", shard.begin, ", ", shard.end,
               ") along axis ", shard.axis);
  ISOBAR_CHECK(spec.order == MemoryOrder::as_in_files || (shard.axis == 0 && spec.shape.size() >= 2), "parameter ",
               spec.names[0], " of shape ", to_string(spec.shape), " cannot lie channels-last, with parts along axis ",
               shard.axis);
  Shape shape = shape_of_part(spec);
  entries_.push_back({.spec = std::move(spec), .shape = std::move(shape)});
  return static_cast<int>(entries_.size()) - 1;
}

Weights joined(std::initializer_list<Weights> lists) {
  Weights all;
  for (const Weights& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

void Parameters::freeze(const std::vector<std::string>& patterns) {
  ISOBAR_CHECK(!weights_.defined(), "parameters are frozen after allocate()");
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.insert(names.end(), entry.spec.names.begin(), entry.spec.names.end());
  for (const std::string& pattern : patterns) {
    const auto fits = [&](const std::string& name) { return fits_pattern(pattern, name); };
    ISOBAR_CHECK(std::ranges::any_of(names, fits), "config key freeze: no parameter of this network is called ",
                 pattern, "; the nearest are ", comma_list(nearest_names(pattern, names_and_beginnings(names), 3)));
  }
  const auto is_frozen = [&](const std::string& name) {
    return std::ranges::any_of(patterns, [&](const std::string& pattern) { return fits_pattern(pattern, name); });
  };
  for (Entry& entry : entries_) {
    const std::vector<std::string>& stacked = entry.spec.names;
    entry.frozen = is_frozen(stacked.front());
    for (const std::string& name : stacked)
      ISOBAR_CHECK(is_frozen(name) == entry.frozen, "config key freeze: of ", comma_list(stacked),
                   ", which are computed as one, some are frozen and some are not");
  }
  ISOBAR_CHECK(patterns.empty() || !std::ranges::all_of(entries_, &Entry::frozen),
               "config key freeze: all parameters of the network are frozen, and nothing is left to train");
}

void Parameters::freeze_all() {
  ISOBAR_CHECK(!weights_.defined(), "parameters are frozen after allocate()");
  for (Entry& entry : entries_) entry.frozen = true;
}

void Parameters::hold_only(const Weights& held, const Weights& tied) {
  ISOBAR_CHECK(!weights_.defined(), "parameters are dealt out after allocate()");
  for (int handle = 0; handle < handles(); ++handle) {
    Entry& entry = entries_[static_cast<std::size_t>(handle)];
    entry.tied = std::ranges::find(tied, handle) != tied.end();
    if (std::ranges::find(held, handle) != held.end()) continue;
    entry.spec.shard = {.axis = entry.spec.shard.axis, .begin = 0, .end = 0};
    entry.shape = shape_of_part(entry.spec);
  }
}

const std::string& Parameters::name_of(int handle) const {
  return entries_[static_cast<std::size_t>(handle)].spec.names.front();
}

void Parameters::note_dealt(Dealt dealt) {
  if (std::ranges::find(dealt_, dealt.what, &Dealt::what) == dealt_.end()) dealt_.push_back(std::move(dealt));
}

std::int64_t Parameters::held() const {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.numel();
  return sum;
}

std::int64_t Parameters::held_trained() const {
  std::int64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.frozen ? 0 : entry.numel();
  return sum;
}

std::int64_t Parameters::frozen_count() const {
  std::int64_t sum = 0;
  for (const NamedParameter& p : named_) sum += p.frozen ? numel_of(p.full_shape) : 0;
  return sum;
}

std::vector<int> Parameters::handles_of(Sharing sharing, const std::function<bool(const Entry&)>& are_wanted) const {
  std::vector<int> handles;
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].spec.sharing == sharing && are_wanted(entries_[i])) handles.push_back(static_cast<int>(i));
  return handles;
}

void Parameters::lay_out(const BucketPlan& plan, std::size_t element) {
  constexpr std::array kOrder{Sharing::shard, Sharing::copy, Sharing::copy_of_partial};
  const auto lay_out_handles = [&](Section section, const auto& are_wanted) {
    const std::int64_t begin = total_;
    const std::vector<int> handles = handles_of(section.sharing, are_wanted);
    if (section.frozen)
      lay_out_frozen(handles);
    else
      lay_out_section(section, handles, plan, element);
    section.range = {begin, total_};
    if (total_ > begin) sections_.push_back(section);
  };
  for (const bool decay : {true, false}) {
    for (const bool tied : {false, true})
      for (const Sharing sharing : kOrder)
        lay_out_handles({sharing, {}, /*frozen=*/false, tied},
                        [decay, tied](const Entry& e) { return !e.frozen && e.spec.decay == decay && e.tied == tied; });
    if (decay) decay_end_ = total_;
  }
  trained_end_ = total_;
  for (const Sharing sharing : kOrder)
    lay_out_handles({sharing, {}, /*frozen=*/true, /*tied=*/false}, [](const Entry& e) { return e.frozen; });
  list_names();
}

void Parameters::lay_out_frozen(const std::vector<int>& handles) {
  for (const int handle : handles) {
    Entry& entry = entries_[static_cast<std::size_t>(handle)];
    check_room_for(entry, total_);
    entry.offset = total_;
    total_ += aligned(entry.numel());
  }
}

// Error if the entry, at this element of a buffer, makes the buffer too large.
void Parameters::check_room_for(const Entry& entry, std::int64_t at) {
  ISOBAR_CHECK(entry.numel() <= kMaxElements - at, "parameter ", entry.spec.names[0], " of shape ",
               to_string(entry.shape), " makes the model too large for any machine");
}

// Buckets are filled from the end, because the last parameters' gradients are final first.
void Parameters::lay_out_section(const Section& section, const std::vector<int>& handles, const BucketPlan& plan,
                                 std::size_t element) {
  std::vector<Bucket> buckets;
  std::int64_t size = 0;
  bool is_full = true;
  for (auto handle = handles.rbegin(); handle != handles.rend(); ++handle) {
    Entry& entry = entries_[static_cast<std::size_t>(*handle)];
    entry.offset = total_;
    if (entry.numel() == 0) continue;  // the shard is on other ranks
    if (is_full) {
      buckets.push_back({section.sharing, {}, {}, section.tied});
      size = 0;
    }
    check_room_for(entry, size);
    buckets.back().handles.push_back(*handle);
    size += aligned(entry.numel());
    is_full = static_cast<std::size_t>(size) * element >= plan.bytes;
  }
  const auto& slices = section.tied ? plan.tied_slices : plan.slices;
  const std::int64_t unit = kAlignment * slices[static_cast<std::size_t>(section.sharing)];
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    std::int64_t offset = total_;
    for (auto handle = bucket->handles.rbegin(); handle != bucket->handles.rend(); ++handle) {
      Entry& entry = entries_[static_cast<std::size_t>(*handle)];
      entry.offset = offset;
      check_room_for(entry, offset);
      offset += aligned(entry.numel());
    }
    bucket->range = {total_, total_ + round_up(offset - total_, unit)};
    total_ = bucket->range.end;
    buckets_.push_back(std::move(*bucket));
  }
}

void Parameters::list_names() {
  for (const Entry& entry : entries_) {
    std::int64_t part = entry.offset;
    for (const std::string& name : entry.spec.names) {
      named_.push_back({name, entry.shape, part, entry.spec.shape, entry.spec.shard, entry.spec.order, entry.frozen});
      part += numel_of(entry.shape);
      count_ += numel_of(entry.spec.shape);
    }
  }
}

// The system grants more memory than it has, and kills the process when it writes the memory, so buffers that are too
// large are refused here. fill() holds the weights of one tensor on the host, in fp64 and in their own dtype.
void Parameters::check_memory(DType dtype, DType activation, Device device) const {
  if (!holds_values(device)) return;
  const bool on_host = device.kind != DeviceKind::cuda;
  const std::size_t weights = size_of(dtype) + (on_host && is_16_bit(activation) ? 2 : 0);
  const std::size_t gradients = on_host ? size_of(dtype) : 0;
  std::int64_t largest = 0;
  for (const NamedParameter& p : named_) largest = std::max(largest, p.numel());
  const std::size_t needed = static_cast<std::size_t>(total_) * weights +
                             static_cast<std::size_t>(trained_end_) * gradients +
                             static_cast<std::size_t>(largest) * (sizeof(double) + size_of(dtype));
  ISOBAR_CHECK(needed <= machine_memory_bytes(), "the model is too large: its ", count_, " parameters need ",
               text_of_bytes(needed), " of memory, and this machine has ", text_of_bytes(machine_memory_bytes()));
}

void Parameters::allocate(DType activation, Device device, std::uint64_t seed, const BucketPlan& plan) {
  const DType dtype = accumulator_of(activation);
  lay_out(plan, size_of(dtype));
  activation_ = activation;
  check_memory(dtype, activation, device);
  {
    const MemoryScope scope("parameters");
    weights_ = Tensor::zeros({total_}, dtype, device);
    if (is_16_bit(activation)) compute_ = Tensor::zeros({total_}, activation, device);
  }
  {
    const MemoryScope scope("gradients");
    grads_ = Tensor::zeros({trained_end_}, dtype, device);
  }
  if (!std::ranges::all_of(entries_, &Entry::frozen)) fill(seed);
  for (const Entry& entry : entries_) {
    Shape shape = entry.shape;
    shape[0] *= static_cast<std::int64_t>(entry.spec.names.size());
    const Tensor& source = entry.spec.compute_copy && compute_.defined() ? compute_ : weights_;
    const Tensor values = source.slice(entry.offset, shape);
    const Tensor rounded = compute_.defined() ? compute_.slice(entry.offset, shape) : Tensor();
    if (entry.frozen) {
      leaves_.push_back(make_frozen(values, rounded));
      continue;
    }
    leaves_.push_back(make_leaf(values, grads_.slice(entry.offset, shape)));
    leaves_.back().leaf()->rounded = rounded;
  }
}

// A part of a tensor gets the values of the whole one: they follow from the index in the full tensor of a file.
void Parameters::fill(std::uint64_t seed) {
  if (!holds_values(device())) return;
  std::vector<double> values;
  for (const Entry& entry : entries_) {
    const ParameterSpec& spec = entry.spec;
    const Shard& shard = spec.shard;
    // The tensor as [rows, columns] along the shard's axis: the axes after it belong to the columns.
    const auto axis = spec.shape.begin() + shard.axis;
    const std::int64_t rows = std::accumulate(spec.shape.begin(), axis, std::int64_t{1}, std::multiplies());
    const std::int64_t inner = std::accumulate(axis + 1, spec.shape.end(), std::int64_t{1}, std::multiplies());
    const std::int64_t first = shard.begin * inner, held = (shard.end - shard.begin) * inner, whole = *axis * inner;
    std::int64_t at = entry.offset;
    for (const std::string& name : spec.names) {
      const std::uint64_t stream = hash_of(name);
      values.resize(static_cast<std::size_t>(rows * held));
      parallel_for(rows * held, kGrain / kCostOfNormal, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i)
          values[static_cast<std::size_t>(i)] = initial_value(
              spec.init, seed, stream, position_in_file(spec.shape, spec.order, i / held * whole + first + i % held));
      });
      weights_.slice(at, entry.shape).set_values(values);
      at += numel_of(entry.shape);
    }
  }
  round_to_compute();
}

void Parameters::begin_step() {
  for (const Tensor& leaf : leaves_)
    if (leaf.tracked()) leaf.leaf()->touched = false;
}

void Parameters::finish_gradients() {
  for (const Tensor& leaf : leaves_) {
    if (!leaf.tracked() || leaf.leaf()->touched) continue;
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
