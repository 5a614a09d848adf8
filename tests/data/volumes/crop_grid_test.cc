// Crops that cover a box: each point is kept once, far enough from the ends.
#include "data/volumes/crop_grid.h"

#include <algorithm>
#include <vector>

#include "tests/harness/testing.h"

namespace isobar {
namespace {

using testing::ContainsSubstring;

VolumePair box(const Point& extent) {
  return synthetic_volumes(extent, 2, 3, 7);
}

// How often each point of an axis is kept, by the crops of a grid that differ along it alone. Checks on the way that
// what is kept lies at its place in the crop, `margin` points or more from the ends of the crop that are no ends of the
// box.
std::vector<int> kept_along(std::int64_t length, std::int64_t size, std::int64_t overlap, bool wraps) {
  const VolumePair pair = box({length, 2, 2});
  const CropGrid grid(*pair.input, {.size = {size, 2, 2}, .overlap = {overlap, 0, 0}, .wraps = {wraps, false, false}});
  std::vector<int> kept(static_cast<std::size_t>(length));
  for (std::int64_t index = 0; index < grid.crops(); ++index) {
    const GridCrop crop = grid.crop(index);
    CHECK(crop.count[1] == 2);
    CHECK(crop.offset[2] == 0);
    for (std::int64_t i = 0; i < crop.count[0]; ++i) {
      const std::int64_t point = crop.first[0] + i, place = crop.offset[0] + i;
      CHECK((crop.start[0] + place) % length == point);
      CHECK((wraps || point == 0 || crop.start[0] == 0 || place >= overlap / 2));
      if (wraps) CHECK(place >= overlap / 2);
      if (wraps || crop.start[0] + size < length) CHECK(size - 1 - place >= overlap / 2);
      ++kept.at(static_cast<std::size_t>(point));
    }
  }
  return kept;
}

}  // namespace

TEST_CASE("crop grid: every point of an axis is kept of one crop, far enough from its ends") {
  for (const bool wraps : {false, true})
    for (const std::int64_t length : {4, 7, 8, 12, 13})
      for (const std::int64_t size : {1, 3, 4})
        for (std::int64_t overlap = 0; overlap < size; ++overlap) {
          INFO(length << " points, crops of " << size << ", overlap " << overlap << ", wraps " << wraps);
          const std::vector<int> kept = kept_along(length, size, overlap, wraps);
          CHECK(std::ranges::all_of(kept, [](int times) { return times == 1; }));
        }
}

TEST_CASE("crop grid: the crops of a box that does not wrap, and of one that does, are where they should be") {
  const VolumePair pair = box({10, 8, 8});
  const CropGridOptions options{.size = {4, 8, 8}, .overlap = {2, 4, 4}};
  const CropGrid open(*pair.input, options);
  std::vector<std::int64_t> starts, firsts, counts;
  for (std::int64_t i = 0; i < open.crops(); ++i) {
    starts.push_back(open.crop(i).start[0]);
    firsts.push_back(open.crop(i).first[0]);
    counts.push_back(open.crop(i).count[0]);
  }
  CHECK(starts == std::vector<std::int64_t>{0, 2, 4, 6});
  CHECK(firsts == std::vector<std::int64_t>{0, 3, 5, 7});
  CHECK(counts == std::vector<std::int64_t>{3, 2, 2, 3});
  CHECK(open.begins_at_multiples_of(2));
  CHECK_FALSE(open.begins_at_multiples_of(4));
  CHECK(open.covers(1));
  CHECK_FALSE(open.covers(2));

  CropGridOptions round = options;
  round.wraps = {true, false, false};
  const CropGrid periodic(*pair.input, round);
  CHECK(periodic.crops() == 5);
  CHECK(periodic.crop(0).start == Point{9, 0, 0});
  CHECK(periodic.crop(0).first == Point{0, 0, 0});
  CHECK(periodic.crop(0).offset == Point{1, 0, 0});
  CHECK(periodic.crop(4).start == Point{7, 0, 0});
  CHECK(periodic.crop(4).count == Point{2, 8, 8});
  CHECK_FALSE(periodic.begins_at_multiples_of(2));

  // From the other end its starts are no multiples.
  const CropGrid uneven(*pair.input, {.size = {4, 8, 8}, .overlap = {}, .wraps = {true, false, false}});
  CHECK(uneven.crop(2).start == Point{8, 0, 0});
  CHECK(uneven.begins_at_multiples_of(2));
  CHECK_FALSE(uneven.begins_at_multiples_of(4));

  // The last axis is the fastest.
  const CropGrid both(*pair.input, {.size = {5, 8, 4}, .overlap = {}});
  CHECK(both.crops() == 4);
  CHECK(both.crop(1).start == Point{0, 0, 4});
  CHECK(both.crop(2).start == Point{5, 0, 0});
}

TEST_CASE("crop grid: one crop that is the box has no seams, unless it wraps") {
  const VolumePair pair = box({8, 8, 8});
  const CropGridOptions options{.size = {8, 8, 8}, .overlap = {4, 4, 4}};
  CHECK(CropGrid(*pair.input, options).covers(1000));
  CropGridOptions round = options;
  round.wraps[1] = true;
  CHECK(CropGrid(*pair.input, round).crops() == 2);
  CHECK_FALSE(CropGrid(*pair.input, round).covers(1000));
}

TEST_CASE("crop grid: crops that do not fit are refused with the volume and the numbers") {
  const VolumePair pair = box({8, 6, 8});
  CHECK_THROWS_WITH(
      CropGrid(*pair.input, {.size = {8, 8, 8}}),
      "the synthetic input [2, 8, 6, 8] has 6 points along axis 1, fewer than a crop, which has 8 (config "
      "key data_size)");
  CHECK_THROWS_WITH(CropGrid(*pair.input, {.size = {4, 4, 4}, .overlap = {0, 0, 4}}),
                    "the synthetic input: crops of 4 points cannot overlap by 4; the overlap is from 0 to 3");
  CHECK_THROWS_WITH(CropGrid(*pair.input, {.size = {4, 4, 4}, .overlap = {-1, 0, 0}}),
                    ContainsSubstring("cannot overlap by -1"));
}

}  // namespace isobar
