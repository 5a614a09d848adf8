// What two sets may not share: steps of one file, by whichever name it is found.
#include "data/fields/split.h"

#include <filesystem>
#include <string>

#include "tests/harness/data_files.h"
#include "tests/harness/error_of.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

using namespace isobar;
namespace fs = std::filesystem;

namespace {

FieldSeries steps_of(const fs::path& path, StepRange range) {
  return FieldSeries({.paths = {path.string()}, .range = range});
}

}  // namespace

TEST_CASE("split: a step of two sets is refused by whichever names they know its file") {
  const testing::TemporaryFolder folder;
  fs::create_directories(folder / "train");
  fs::create_directories(folder / "valid");
  testing::write_fields(folder / "train/2018.h5", {8, 1, 2, 2});
  testing::write_fields(folder / "valid/2017.h5", {8, 1, 2, 2});
  fs::create_symlink(folder / "train/2018.h5", folder / "valid/2018.h5");
  fs::create_symlink("../train/2018.h5", folder / "valid/2019.h5");
  fs::create_directory_symlink(folder / "train", folder / "again");
  const fs::path file = fs::canonical(folder / "train/2018.h5");
  const FieldSeries train = steps_of(folder / "train", {0, 5});
  const auto refusal = [&](const std::string& path, StepRange range) {
    const FieldSeries valid = steps_of(folder / path, range);
    return testing::error_of([&] {
      refuse_overlap({train, "train_range", "trained"}, {valid, "valid_range", "validation"});
    });
  };
  for (const std::string path : {"train", "train/2018.h5", "train/../train/2018.h5", "valid/2018.h5", "valid/2019.h5",
                                 "again", "again/2018.h5", "again/../valid/2019.h5"}) {
    INFO(path);
    CHECK(refusal(path, {3, 8}) == "train_range and valid_range share steps 3 to 4 of " + file.string() +
                                       ": validation would look at what was trained on (config key allow_overlap "
                                       "permits it)");
    CHECK(refusal(path, {5, 8}) == "");
  }
  CHECK(refusal("valid/2017.h5", {0, 8}) == "");
  // Of a folder's second file steps count from 0 again.
  CHECK(refusal("valid", {0, 8}) == "");
  CHECK(refusal("valid", {12, 16}).starts_with("train_range and valid_range share steps 4 to 4 of " + file.string()));
}
