#include "kernels/cuda/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

namespace isobar::gpu {

namespace {

namespace fs = std::filesystem;

// The folders of NVIDIA's wheels in a Python installation: CUDA 13 has all libraries in one folder, CUDA 12 one folder
// per library; cuDNN and NCCL have their own folders.
void add_python_packages(std::vector<fs::path>& folders, const fs::path& prefix) {
  std::error_code ignored;
  for (const fs::directory_entry& python : fs::directory_iterator(prefix / "lib", ignored)) {
    if (python.path().filename().string().rfind("python", 0) != 0) continue;
    for (const char* packages : {"site-packages", "dist-packages"})
      for (const char* folder : {"cu13/lib", "cublas/lib", "cudnn/lib", "nccl/lib"})
        folders.push_back(python.path() / packages / "nvidia" / folder);
  }
}

std::vector<fs::path> folders_to_search() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value != nullptr ? value : "");
  };
  std::vector<fs::path> folders;
  if (const fs::path chosen = variable("ISOBAR_CUDA_LIBS"); !chosen.empty()) folders.push_back(chosen);
  folders.emplace_back();  // no folder: the loader's own search
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  folders.push_back(program.parent_path() / ".." / "lib");
  if (const fs::path environment = variable("VIRTUAL_ENV"); !environment.empty())
    add_python_packages(folders, environment);
  if (const fs::path home = variable("HOME"); !home.empty()) add_python_packages(folders, home / ".local");
  add_python_packages(folders, "/usr/local");
  if (const fs::path toolkit = variable("CUDA_HOME"); !toolkit.empty()) folders.push_back(toolkit / "lib64");
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
}

}  // namespace

Library::Library(const std::string& file) : file_(file) {
  for (const fs::path& folder : folders_to_search()) {
    handle_ = dlopen((folder / file).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
  }
  throw_error(
      file, " is needed on a GPU and was not found: install CUDA's libraries or name their folder in ISOBAR_CUDA_LIBS");
}

void* Library::find(const char* name) const {
  return dlsym(handle_, name);
}

void* Library::symbol(const char* name) const {
  void* address = find(name);
  ISOBAR_CHECK(address != nullptr, file_, " has no function ", name);
  return address;
}

}  // namespace isobar::gpu
