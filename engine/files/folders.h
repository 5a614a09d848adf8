// Folders: removed, exchanged, and replaced by new ones.
#pragma once

#include <filesystem>

#include "engine/files/file_lock.h"

namespace isobar {

// The folder that a file or folder of this name lies in.
std::filesystem::path folder_of(const std::filesystem::path& path);

// Where a path leads: absolute, with links followed as far as it exists. So different spellings of one place are equal,
// also of one that does not exist yet ("out.h5", "./out.h5").
std::filesystem::path resolved_path(const std::filesystem::path& path);

// Removes a folder with all that is in it, or a file. Of a symbolic link only the link. What cannot be removed stays,
// without an Error: a file that is still open, on a network file system.
void remove_all_of(const std::filesystem::path& path);

// Exchanges two folders in one step (renameat2); false if the file system cannot.
bool exchange_folders(const std::filesystem::path& a, const std::filesystem::path& b);

// A new folder that will replace `path`. It is made under a hidden name beside it. put_in_place() flushes all that is
// in it to the disk and gives it its name; the folder that had the name is exchanged with it and removed. An end before
// (an error, a full disk, kill -9) leaves what was there. The destructor without put_in_place() removes the new folder.
class FolderReplacement {
 public:
  // Makes the hidden folder, and removes those of killed writers of the same path. The folder around it must exist.
  explicit FolderReplacement(const std::filesystem::path& path);
  ~FolderReplacement();
  FolderReplacement(const FolderReplacement&) = delete;
  FolderReplacement& operator=(const FolderReplacement&) = delete;

  const std::filesystem::path& path() const { return path_; }  // the final name, without a slash at its end
  const std::filesystem::path& temporary() const { return temporary_; }

  void put_in_place();  // call it once

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty: it is in place
  FileLock lock_;                    // of the hidden folder: says that the writer is alive
};

}  // namespace isobar
