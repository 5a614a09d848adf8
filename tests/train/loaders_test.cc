// What a run takes from its data sets.
#include "apps/train/loaders.h"

#include <string>
#include <vector>

#include "tests/harness/data_files.h"
#include "tests/harness/testing.h"

namespace isobar::testing {
namespace {

TEST_CASE("names that a file gives its channels are believed, c0 to c19 too", "[loaders]") {
  const TemporaryFolder folder;
  std::vector<std::string> names;
  for (int c = 0; c < 20; ++c) names.push_back("c" + std::to_string(c));
  const FieldsShape shape{2, 20, 2, 4};
  write_labelled_fields((folder / "2001.h5").string(), shape, {.names = names}, field_values(shape));
  write_fields((folder / "unnamed.h5").string(), shape);
  Config config;
  config.img_size = {2, 4};
  CHECK(channel_names_of(config, Era5Dataset({.paths = {(folder / "2001.h5").string()}})) == names);
  CHECK(channel_names_of(config, Era5Dataset({.paths = {(folder / "unnamed.h5").string()}})).front() == "u10");
}

}  // namespace
}  // namespace isobar::testing
