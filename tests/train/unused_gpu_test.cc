// A GPU that is there and is not used is told, and nothing else is.
#include "apps/train/unused_gpu.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/harness/temporary_folder.h"
#include "tests/harness/testing.h"

namespace isobar {

using testing::ContainsSubstring;

TEST_CASE("a GPU that the CPU is taken beside is told, and other devices are not") {
  const char* before = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string kept = before == nullptr ? "" : before;
  unsetenv("CUDA_VISIBLE_DEVICES");
  const testing::TemporaryFolder devices;
  for (const char* name :
       {"null", "nvidiactl", "nvidia-uvm", "nvidia", "xnvidia0", "nvidia0x", "nvidia:", "nvidia-caps0"})
    std::ofstream(devices / name);
  CHECK(about_unused_gpu("auto", Device{}, false, devices / "") == "");
  CHECK(about_unused_gpu("auto", Device{}, false, devices / "none") == "");
  for (const char* gpu : {"nvidia0", "nvidia9", "nvidia10"}) {
    std::ofstream(devices / gpu);
    CHECK_THAT(about_unused_gpu("auto", Device{}, false, devices / ""), ContainsSubstring(gpu));
    std::filesystem::remove(devices / gpu);
  }
  std::ofstream(devices / "nvidia12");
  CHECK_THAT(about_unused_gpu("auto", Device{}, false, devices / ""),
             ContainsSubstring("/nvidia12, and this isobar was built without CUDA: training on the CPU"));
  CHECK_THAT(about_unused_gpu("auto", Device{}, true, devices / ""), ContainsSubstring("and CUDA finds none"));
  CHECK(about_unused_gpu("cpu", Device{}, false, devices / "") == "");
  CHECK(about_unused_gpu("auto", {DeviceKind::cuda}, true, devices / "") == "");
  for (const char* hidden : {"", "-1"}) {
    setenv("CUDA_VISIBLE_DEVICES", hidden, 1);
    CHECK(about_unused_gpu("auto", Device{}, false, devices / "") == "");
  }
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  CHECK(about_unused_gpu("auto", Device{}, false, devices / "") != "");
  before == nullptr ? unsetenv("CUDA_VISIBLE_DEVICES") : setenv("CUDA_VISIBLE_DEVICES", kept.c_str(), 1);
}

}  // namespace isobar
