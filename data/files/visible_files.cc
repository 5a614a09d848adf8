#include "data/files/visible_files.h"

#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"

namespace isobar {

std::vector<std::filesystem::path> visible_files(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> files = entries_of(folder, error);
  ISOBAR_CHECK(!error, folder.string(), " cannot be read: ", error.message());
  std::erase_if(files, [](const std::filesystem::path& file) { return file.filename().string().starts_with('.'); });
  return files;
}

}  // namespace isobar
