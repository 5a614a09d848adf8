#include "data/fields/layout.h"

#include <filesystem>
#include <fstream>

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
