#include "models/key_value_cache.h"

#include <algorithm>
#include <cstddef>

#include "engine/stream.h"
#include "kernels/common/check.h"
#include "kernels/common/run.h"
#include "kernels/copy_strided.h"

namespace isobar {
namespace {

Tensor on_device(const std::vector<std::int32_t>& numbers, Device device) {
  Tensor host = Tensor::empty({std::ssize(numbers)}, DType::i32, Device{});
  std::ranges::copy(numbers, host.data_as<std::int32_t>());
  return host.to(device);
}

// Columns [first, first + C) of rows [T, 3·C], one after another, to the kept rows of a text.
void copy_columns(const Tensor& qkv, std::int64_t first, const Tensor& kept, std::int64_t text) {
  const std::int64_t rows = qkv.size(0), width = kept.size(2);
  const std::size_t size = size_of(qkv.dtype());
  ISOBAR_RUN(qkv.device(), copy_strided,
             {.blocks = rows,
              .length = width,
              .source_stride = qkv.size(1),
              .destination_stride = width,
              .dtype = qkv.dtype(),
              .source = static_cast<const std::byte*>(qkv.data()) + static_cast<std::size_t>(first) * size,
              .destination =
                  static_cast<std::byte*>(kept.data()) + static_cast<std::size_t>(text * kept.size(1) * width) * size},
             current_stream());
}

}  // namespace

KeyValueCache::KeyValueCache(std::int64_t texts, std::int64_t capacity, Device device)
    : texts_(texts), capacity_(capacity), device_(device) {
  ISOBAR_CHECK(texts >= 1 && capacity >= 1, "a cache of ", texts, " texts of ", capacity, " tokens is none");
}

void KeyValueCache::begin(std::int64_t text) {
  ISOBAR_CHECK(text >= 0 && text < texts_, "text ", text, " of ", texts_, " begins");
  text_ = text;
}

void KeyValueCache::begin_step(const std::vector<std::int32_t>& positions) {
  ISOBAR_CHECK(std::ssize(positions) == texts_, positions.size(), " positions of ", texts_, " texts");
  for (const std::int32_t position : positions)
    ISOBAR_CHECK(position < capacity_, "a token at position ", position, " has no room in a cache of ", capacity_);
  text_ = -1;
  seen_ = on_device(positions, device_);
  std::vector<std::int32_t> places = positions;
  for (std::int32_t& place : places) place = std::max(place, 0);
  positions_ = on_device(places, device_);
}

KeyValueCache::Kept& KeyValueCache::of_stage(std::int64_t stage, const Tensor& qkv) {
  const auto number = static_cast<std::size_t>(stage);
  if (number >= stages_.size()) stages_.resize(number + 1);
  Kept& kept = stages_[number];
  if (!kept.keys.defined()) {
    const MemoryScope scope("keys and values");
    const Shape shape{texts_, capacity_, qkv.size(1) / 3};
    kept = {Tensor::empty(shape, qkv.dtype(), qkv.device()), Tensor::empty(shape, qkv.dtype(), qkv.device())};
  }
  return kept;
}

void KeyValueCache::keep(const Tensor& qkv, std::int64_t stage) {
  ISOBAR_CHECK(qkv.size(0) <= capacity_, "a text of ", qkv.size(0), " tokens has no room in a cache of ", capacity_);
  const Kept& kept = of_stage(stage, qkv);
  const std::int64_t width = qkv.size(1) / 3;
  copy_columns(qkv, width, kept.keys, text_);
  copy_columns(qkv, 2 * width, kept.values, text_);
}

Tensor KeyValueCache::attend(const Tensor& qkv, std::int64_t stage, const AttentionOptions& options) {
  const Kept& kept = of_stage(stage, qkv);
  return attention_cached(qkv, kept.keys, kept.values, seen_, options);
}

}  // namespace isobar
