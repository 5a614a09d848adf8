#include "models/pass.h"

#include <utility>

#include "kernels/common/check.h"

namespace isobar {

Pass Pass::training(DropoutKey masks, SampleWindow samples) {
  Pass pass;
  pass.is_training_ = true;
  pass.masks_ = masks;
  pass.window_ = samples;
  return pass;
}

Pass Pass::continuing(KeyValueCache& cache) {
  Pass pass;
  pass.cache_ = &cache;
  return pass;
}

Pass Pass::over(std::int64_t count) const {
  Pass same = *this;
  same.samples_ = count;
  return same;
}

Pass Pass::over(TokenPlaces places) const {
  Pass same = *this;
  same.places_ = std::move(places);
  return same;
}

Pass Pass::step(std::int64_t k) const {
  Pass same = *this;
  same.masks_.stream += static_cast<std::uint64_t>(k) << 48;
  return same;
}

Pass Pass::stage(std::int64_t number) const {
  Pass same = *this;
  same.masks_.stream += static_cast<std::uint64_t>(number) * kMasksOfStage;
  same.drawn_ = 0;
  same.stage_ = number;
  return same;
}

std::int64_t Pass::samples() const {
  ISOBAR_CHECK(samples_ > 0, "a pass does not know how many samples it has (Pass::over)");
  return samples_;
}

DropoutKey Pass::next_mask() {
  ISOBAR_CHECK(drawn_ < kMasksOfStage, "a stage draws more than ", kMasksOfStage, " random masks: cut it in two");
  return {masks_.seed, masks_.stream + drawn_++, masks_.stream_offset};
}

}  // namespace isobar
