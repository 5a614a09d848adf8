// Where one grid lies in another.
#include "data/forecasts/grid_match.h"

#include <vector>

#include "kernels/common/check.h"
#include "tests/harness/testing.h"

using namespace isobar;
using testing::ContainsSubstring;

namespace {

using Numbers = std::vector<double>;

// Held: rows 60, 30, 0, -30 and columns 0, 90, 180, 270; a value is 10 · row + column.
const FieldGrid kHeld{4, 4, {60, 30, 0, -30}, {0, 90, 180, 270}, "truth.nc"};

std::vector<float> taken(const FieldGrid& wanted, const FieldGrid& held) {
  const GridMatch match(wanted, held);
  std::vector<float> band, out(static_cast<std::size_t>(wanted.points()));
  for (std::int64_t row = 0; row < match.rows().count; ++row)
    for (std::int64_t column = 0; column < held.width; ++column)
      band.push_back(static_cast<float>(10 * (match.rows().first + row) + column));
  match.take(band.data(), out.data());
  return out;
}

}  // namespace

TEST_CASE("grid match: a crop, rows in the other direction, columns that begin elsewhere") {
  CHECK(taken({2, 2, Numbers{30, 0}, Numbers{0, 90}, "f"}, kHeld) == std::vector<float>{10, 11, 20, 21});
  CHECK(taken({2, 1, Numbers{-30, 30}, Numbers{90}, "f"}, kHeld) == std::vector<float>{31, 11});
  CHECK(taken({1, 4, Numbers{60}, Numbers{-180, -90, 0, 90}, "f"}, kHeld) == std::vector<float>{2, 3, 0, 1});
  CHECK(taken({1, 2, Numbers{59.999}, Numbers{359.999, 90}, "f"}, kHeld) == std::vector<float>{0, 1});  // rounded
  CHECK(taken({2, 2, {}, {}, "f"}, kHeld) == std::vector<float>{0, 1, 10, 11});  // a crop without coordinates
}

TEST_CASE("grid match: another grid is refused with both") {
  CHECK_THROWS_WITH(
      taken({1, 1, Numbers{45}, Numbers{0}, "f.nc"}, kHeld),
      ContainsSubstring("f.nc: its grid of 1 x 1 points, latitudes 45, longitudes 0 is not within that of "
                        "truth.nc: 4 x 4 points, latitudes 60 ... -30, longitudes 0 ... 270"));
  CHECK_THROWS_WITH(taken({1, 1, Numbers{60}, Numbers{45}, "f.nc"}, kHeld), ContainsSubstring("is not within"));
  CHECK_THROWS_WITH(taken({1, 1, Numbers{60.02}, Numbers{0}, "f.nc"}, kHeld), ContainsSubstring("is not within"));
  CHECK(taken({1, 1, Numbers{60.009}, Numbers{0}, "f.nc"}, kHeld) == std::vector<float>{0});
  // A hundredth of the spacing of fine grids, between any two rows.
  const FieldGrid fine{3, 1, {60, 59, 58.5}, {0}, "fine.nc"};
  CHECK(taken({1, 1, Numbers{59.004}, Numbers{0}, "f.nc"}, fine) == std::vector<float>{10});
  CHECK_THROWS_WITH(taken({1, 1, Numbers{59.006}, Numbers{0}, "f.nc"}, fine), ContainsSubstring("is not within"));
  CHECK_THROWS_WITH(taken({5, 1, {}, {}, "f.nc"}, kHeld), ContainsSubstring("no latitudes"));
  const FieldGrid plain{4, 4, {}, {}, "plain.h5"}, turned{4, 4, {-30, 0, 30, 60}, {-180, -90, 0, 90}, "f.nc"};
  CHECK_THROWS_WITH(GridMatch(turned, plain),
                    "f.nc: its latitudes go from -30 to 60, but plain.h5 has none, and its "
                    "rows are taken from north to south");
  CHECK_THROWS_WITH(GridMatch(plain, turned), ContainsSubstring("f.nc: its latitudes go from -30 to 60"));
  FieldGrid eastwards = turned;
  eastwards.latitudes = {60, 30, 0, -30};
  CHECK_THROWS_WITH(GridMatch(eastwards, plain),
                    "f.nc: its longitudes begin at -180, but plain.h5 has none, and its "
                    "columns are taken from 0 on");
  CHECK(taken(plain, kHeld) == taken(kHeld, kHeld));
}
