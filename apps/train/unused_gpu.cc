#include "apps/train/unused_gpu.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "kernels/common/check.h"

namespace isobar {

namespace fs = std::filesystem;

namespace {

// "nvidia0", ...; nvidiactl, nvidia-uvm and others exist with the driver alone.
bool is_gpu(const std::string& name) {
  constexpr std::string_view kStart = "nvidia";
  return name.size() > kStart.size() && name.starts_with(kStart) &&
         std::all_of(name.begin() + kStart.size(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool hides_gpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && (*visible == '\0' || std::string_view(visible).starts_with("-1"));
}

}  // namespace

std::string about_unused_gpu(const std::string& wanted, Device used, bool built_with_cuda, const fs::path& devices) {
  if (wanted != "auto" || used.kind != DeviceKind::cpu || hides_gpus()) return "";
  std::error_code unreadable;
  for (const fs::directory_entry& entry : fs::directory_iterator(devices, unreadable)) {
    if (!is_gpu(entry.path().filename().string())) continue;
    return concat("warning: this machine has an NVIDIA GPU, ", entry.path().string(), ", and ",
                  built_with_cuda ? "CUDA finds none (isobar info says more)" : "this isobar was built without CUDA",
                  ": training on the CPU; --device cpu says that this is meant");
  }
  return "";
}

}  // namespace isobar
