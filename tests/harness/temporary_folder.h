// An empty folder for one test, removed with its contents when the test ends.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "kernels/common/check.h"

namespace isobar::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "isobar_test_XXXXXX").string();
    ISOBAR_CHECK(::mkdtemp(name.data()) != nullptr, name, ": cannot be made");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::filesystem::path& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace isobar::testing
