#include "data/fields/layout.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/fields/field_series.h"
#include "tests/harness/data_files.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;

TEST_CASE("fields to forecast: test/ or valid/ if it holds fields, and hidden files are none") {
  const testing::TemporaryFolder folder;
  CHECK(fields_to_forecast(folder.path()) == folder.path());
  for (const char* part : {"test", "valid"}) std::filesystem::create_directories(folder / part);
  CHECK(fields_to_forecast(folder.path()) == folder.path());
  std::ofstream(folder / "valid/2018.h5") << "fields";
  std::ofstream(folder / "test/._2018.h5") << "what another system writes beside a file";
  CHECK(fields_to_forecast(folder.path()) == std::filesystem::path(folder / "valid"));
  std::ofstream(folder / "test/2019.h5") << "fields";
  CHECK(fields_to_forecast(folder.path()) == std::filesystem::path(folder / "test"));
}

TEST_CASE("layout: a path to what isobar does not read is refused with what to do, wherever a path is given") {
  const testing::TemporaryFolder folder;
  const std::string grib = folder / "raw/x.grib", raw = folder / "raw", zip = folder / "x.zip";
  std::filesystem::create_directories(raw);
  testing::write_text(grib, "GRIB and more");
  testing::write_text(zip, "PK\x03\x04 and more");
  const std::string advice =
      grib + " is a GRIB file, which isobar does not read; write it as NetCDF-4 with cdo -f nc4 copy";
  const std::string none =
      " holds neither train/ and valid/, as the tutorial's data, nor .h5 files, NetCDF files or "
      "Zarr stores; ";
  CHECK_THROWS_WITH(layout_of(raw), "--data " + raw + none + advice);
  CHECK_THROWS_WITH(layout_of(grib), "--data " + advice);
  CHECK_THROWS_WITH(layout_of(zip), "--data " + zip + " is a zip file; unzip it, and name what it holds");
  CHECK_THROWS_WITH(layout_of("https://host/x.zarr"),
                    "--data https://host/x.zarr is an address, and isobar reads files; download what it names first");
  CHECK_THROWS_WITH(layout_of(folder / "none"), "--data " + (folder / "none").string() + " is not a folder");
  CHECK_THROWS_WITH(find_field_files(raw), raw + " holds no .h5 files, no NetCDF files and no Zarr stores; " + advice);
  CHECK_THROWS_WITH(find_field_files("s3://bucket/x.zarr"),
                    "s3://bucket/x.zarr is an address, and isobar reads files; download what it names first");
}

TEST_CASE("layout: the tutorial's folders, one flat folder, and statistics in a folder of their own") {
  const testing::TemporaryFolder folder;
  testing::write_fields(folder / "2018.h5", {2, 1, 2, 2});
  const auto at = [&](const char* name) { return std::filesystem::path(folder / name); };
  const auto folders = [&] {
    const DataLayout layout = layout_of(folder.path());
    return std::vector{layout.train, layout.valid, layout.test, layout.statistics};
  };
  CHECK(folders() == std::vector{folder.path(), folder.path(), folder.path(), folder.path()});
  std::filesystem::create_directories(folder / "stats");
  CHECK(folders() == std::vector{folder.path(), folder.path(), folder.path(), at("stats")});
  std::filesystem::create_directories(folder / "train");
  CHECK(folders() == std::vector{at("train"), at("valid"), at("test"), at("stats")});
  std::filesystem::remove(folder / "stats");
  CHECK(folders() == std::vector{at("train"), at("valid"), at("test"), folder.path()});
}

TEST_CASE("layout: statistics lie in stats/ of a folder, in itself, or beside it, in this order") {
  const testing::TemporaryFolder folder;
  const std::filesystem::path train = folder / "train";
  std::filesystem::create_directories(train / "stats");
  std::filesystem::create_directories(folder / "stats");
  const std::string file = (train / "2018.h5").string();
  testing::write_fields(file, {2, 1, 2, 2});
  CHECK(statistics_beside(train) == train);  // none anywhere
  testing::write_text((folder / "stats/global_means.npy"), "means");
  CHECK(statistics_beside(train) == std::filesystem::path(folder / "stats"));
  CHECK(statistics_beside(file) == std::filesystem::path(folder / "stats"));
  CHECK(statistics_beside(train / "../train") == std::filesystem::path(folder / "stats"));
  CHECK(statistics_beside(folder.path()) == std::filesystem::path(folder / "stats"));
  testing::write_text((train / "global_means.npy").string(), "means");
  CHECK(statistics_beside(train) == train);
  CHECK(statistics_beside(file) == train);
  testing::write_text((train / "stats/global_means.npy").string(), "means");
  CHECK(statistics_beside(train) == train / "stats");
  CHECK(statistics_beside(file) == train / "stats");
}
