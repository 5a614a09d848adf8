#include "data/volumes/crops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/common/check.h"
#include "kernels/turn.h"

namespace isobar {
namespace {

constexpr std::uint32_t kTutorialSeed = 12345;
constexpr int kTutorialTurns = 24;

// Axes and flips of D, H, W; the last row leaves a volume as it is.
constexpr std::array<Turn, kTutorialTurns> kTutorialTable{{
    {{0, 1, 2}, {true, true, false}},  {{0, 1, 2}, {true, false, true}},  {{0, 1, 2}, {false, true, true}},
    {{1, 0, 2}, {true, false, false}}, {{1, 0, 2}, {true, false, true}},  {{1, 0, 2}, {false, true, false}},
    {{1, 0, 2}, {false, true, true}},  {{2, 1, 0}, {true, false, false}}, {{2, 1, 0}, {true, true, false}},
    {{2, 1, 0}, {false, false, true}}, {{2, 1, 0}, {false, true, true}},  {{0, 2, 1}, {false, true, false}},
    {{0, 2, 1}, {true, true, false}},  {{0, 2, 1}, {false, false, true}}, {{0, 2, 1}, {true, false, true}},
    {{1, 2, 0}, {true, true, false}},  {{1, 2, 0}, {false, true, true}},  {{1, 2, 0}, {true, false, true}},
    {{1, 2, 0}, {true, true, true}},   {{2, 0, 1}, {true, true, false}},  {{2, 0, 1}, {true, false, true}},
    {{2, 0, 1}, {false, true, true}},  {{2, 0, 1}, {true, true, true}},   {{0, 1, 2}, {false, false, false}},
}};

// An axis (x, y, z) and an angle in degrees; x is along W, y along H, z along D.
struct Rotation {
  int axis[3];
  int angle;
};
constexpr std::array<Rotation, kTutorialTurns> kTutorialRotations{{
    {{1, 0, 0}, 0},    {{1, 0, 0}, 90},   {{1, 0, 0}, 180},  {{1, 0, 0}, 270},  {{0, 1, 0}, 90},   {{0, 1, 0}, 180},
    {{0, 1, 0}, 270},  {{0, 0, 1}, 90},   {{0, 0, 1}, 180},  {{0, 0, 1}, 270},  {{0, 1, 1}, 180},  {{1, 0, 1}, 180},
    {{1, 1, 0}, 180},  {{0, -1, 1}, 180}, {{-1, 0, 1}, 180}, {{-1, 1, 0}, 180}, {{1, 1, 1}, 120},  {{1, 1, 1}, 240},
    {{1, 1, -1}, 120}, {{1, 1, -1}, 240}, {{1, -1, 1}, 120}, {{1, -1, 1}, 240}, {{-1, 1, 1}, 120}, {{-1, 1, 1}, 240},
}};

// Rodrigues' formula: R = cos·I + sin·[u]ₓ + (1 - cos)·u uᵀ, whose entries are -1, 0 and 1 here. A volume that is
// turned by R has at the point q what it had at Rᵀ q.
Turn turn_by(const Rotation& rotation) {
  const double radians = rotation.angle * 3.14159265358979323846 / 180;
  const double length = std::hypot(rotation.axis[0], rotation.axis[1], rotation.axis[2]);
  const double cosine = std::cos(radians), sine = std::sin(radians);
  const auto entry = [&](int row, int column) {
    const auto u = [&](int i) { return rotation.axis[i] / length; };
    const double cross = row == column ? 0 : ((column - row + 3) % 3 == 1 ? -1 : 1) * u(3 - row - column);
    return std::lround(cosine * (row == column) + sine * cross + (1 - cosine) * u(row) * u(column));
  };
  Turn turn;
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 3; ++column)
      if (entry(row, column) != 0) {
        turn.order[2 - row] = 2 - column;  // x, y, z are the axes 2, 1, 0
        turn.flip[2 - row] = entry(row, column) < 0;
      }
  return turn;
}

// NumPy's RandomState.randint(0, bound): random bits are drawn until they are below the bound.
std::int64_t randint(std::mt19937& generator, std::int64_t bound) {
  const auto last = static_cast<std::uint32_t>(std::max<std::int64_t>(bound - 1, 0));
  if (last == 0) return 0;
  const std::uint32_t mask = std::bit_ceil(last + 1) - 1;
  for (;;)
    if (const std::uint32_t drawn = static_cast<std::uint32_t>(generator()) & mask; drawn <= last) return drawn;
}

bool is_cube(const Point& size) {
  return size[0] == size[1] && size[1] == size[2];
}

// Whether a box of this size, turned, has the same size.
bool keeps(const Turn& turn, const Point& size) {
  for (std::size_t axis = 0; axis < 3; ++axis)
    if (size.at(static_cast<std::size_t>(turn.order[axis])) != size.at(axis)) return false;
  return true;
}

// Of a crop of this size.
std::vector<std::int32_t> turns_of(Augmentation augmentation, const Point& size) {
  std::vector<std::int32_t> turns;
  switch (augmentation) {
    case Augmentation::physical:
      turns.resize(kTurns);
      std::iota(turns.begin(), turns.end(), 0);
      break;
    case Augmentation::tutorial:
      for (const Turn& turn : kTutorialTable) turns.push_back(number_of(turn));
      break;
    case Augmentation::none:
      turns = {0};
      break;
  }
  std::erase_if(turns, [&](std::int32_t number) { return !keeps(turn_of(number), size); });
  return turns;
}

void check_tutorial(const VolumePair& volumes, const CropOptions& options) {
  const Volume& input = *volumes.input;
  ISOBAR_CHECK(is_cube(volumes.extent()), input.name(), " ", to_string(input.shape()),
               " is no cube, and crops are tutorial: set crops=random");
  ISOBAR_CHECK(is_cube(options.size), "crops of ", options.size[0], " x ", options.size[1], " x ", options.size[2],
               " points (config key data_size) are no cubes, and crops are tutorial: set crops=random");
  ISOBAR_CHECK(volumes.boxes() == 1, input.name(), " has ", volumes.boxes(),
               " boxes, and crops are tutorial: set crops=random");
  ISOBAR_CHECK(!options.wrap, "crops are tutorial, which do not wrap: set crops=random or wrap=false");
}

}  // namespace

int tutorial_turn(int index) {
  return number_of(kTutorialTable.at(static_cast<std::size_t>(index)));
}

int tutorial_rotation(int index) {
  return number_of(turn_by(kTutorialRotations.at(static_cast<std::size_t>(index))));
}

TutorialCrops::TutorialCrops(std::int64_t extent, std::int64_t size, std::int64_t batch, std::int64_t samples)
    : starts_(extent - size), batch_(batch), samples_(samples), generator_(kTutorialSeed) {}

std::vector<Crop> TutorialCrops::next_epoch() const {
  std::vector<Crop> crops;
  while (static_cast<std::int64_t>(crops.size()) < samples_) {
    const std::size_t first = crops.size();
    crops.resize(first + static_cast<std::size_t>(batch_));
    const std::span batch = std::span(crops).subspan(first);
    for (Crop& crop : batch)
      for (std::int64_t& start : crop.start) start = randint(generator_, starts_);
    for (Crop& crop : batch) crop.turn = tutorial_rotation(static_cast<int>(randint(generator_, kTutorialTurns)));
  }
  return crops;
}

Crop TutorialCrops::crop(std::int64_t epoch, std::int64_t sample) const {
  const std::lock_guard lock(mutex_);
  if (epoch < epochs_drawn_ && !epochs_.contains(epoch)) {  // drawn long ago
    epochs_.clear();
    epochs_drawn_ = 0;
    generator_.seed(kTutorialSeed);
  }
  while (epochs_drawn_ <= epoch) {
    epochs_[epochs_drawn_] = next_epoch();
    epochs_.erase(epochs_drawn_ - 2);
    ++epochs_drawn_;
  }
  return epochs_.at(epoch)[static_cast<std::size_t>(sample)];
}

CropDataset::CropDataset(VolumePair volumes, const CropOptions& options)
    : volumes_(std::move(volumes)),
      options_(options),
      turns_(turns_of(options.augmentation, options.size)),
      tutorial_(volumes_.extent()[0], options.size[0], options.batch, options.samples) {
  for (std::size_t axis = 0; axis < 3; ++axis)
    ISOBAR_CHECK(options.size[axis] <= volumes_.extent()[axis], volumes_.input->name(), " ",
                 to_string(volumes_.input->shape()), " has no box of ",
                 is_cube(options.size)
                     ? concat(options.size[0], " points along each axis")
                     : concat(options.size[0], " x ", options.size[1], " x ", options.size[2], " points"),
                 " (config key data_size)");
  if (options.rule == CropRule::tutorial) check_tutorial(volumes_, options);
}

std::vector<TensorSpec> CropDataset::layout() const {
  const auto shape = [&](const Volume& volume) {
    return Shape{volume.channels(), options_.size[0], options_.size[1], options_.size[2]};
  };
  return {{.name = "input", .shape = shape(*volumes_.input)},
          {.name = "target", .shape = shape(*volumes_.target)},
          {.name = "turn", .shape = {}, .dtype = DType::i32}};
}

Crop CropDataset::crop(const SampleKey& key) const {
  if (options_.rule == CropRule::tutorial) {
    Crop crop = tutorial_.crop(key.epoch, key.sample);
    if (options_.augmentation == Augmentation::none) crop.turn = 0;
    return crop;
  }
  const SampleKey own = key.of(options_.split);
  Crop crop;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::int64_t length = volumes_.extent()[axis];
    crop.start[axis] = own.random_below(options_.wrap ? length : length - options_.size[axis] + 1, axis);
  }
  crop.turn = turns_[static_cast<std::size_t>(own.random_below(static_cast<std::int64_t>(turns_.size()), 3))];
  crop.box = own.random_below(volumes_.boxes(), 4);
  return crop;
}

void CropDataset::read(const SampleKey& key, std::span<void* const> to) const {
  ISOBAR_CHECK(key.sample >= 0 && key.sample < samples(), name(), ": sample ", key.sample, " of ", samples(),
               " is asked for");
  ISOBAR_CHECK(to.size() == 3, name(), ": a sample has 3 tensors, but ", to.size(), " buffers are given");
  const Crop here = crop(key);
  const auto read = options_.wrap ? &Volume::read_wrapped : &Volume::read;
  (*volumes_.input.*read)(here.box, here.start, options_.size, static_cast<float*>(to[0]));
  (*volumes_.target.*read)(here.box, here.start, options_.size, static_cast<float*>(to[1]));
  *static_cast<std::int32_t*>(to[2]) = here.turn;
}

}  // namespace isobar
