// Files that are written whole or not at all.
//
// AtomicFile writes to a hidden file beside the final name. commit() flushes it to the disk, renames it to the final
// name and flushes the folder. An end before the rename (an error, a full disk, kill -9) leaves the file under the
// final name as it was. The destructor of an AtomicFile without commit() removes the temporary file. Every failure
// throws an Error with the final path and the system's message. If the path is a symbolic link, the link stays and its
// target is replaced. A folder, a device or a pipe is refused. The new file gets the permissions of the old one. Any
// number of writers may write the same file at once: each has its own temporary file, and the last commit() stays.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "engine/files/file_lock.h"

namespace isobar {

// A new file that will replace `path`: for writers that open a file by its name, such as libraries.
class Replacement {
 public:
  // Creates the temporary file, and removes those of killed writers of the same path. The folder must exist.
  explicit Replacement(const std::filesystem::path& path);
  ~Replacement();  // removes the temporary file, unless it is in place
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  const std::filesystem::path& path() const { return path_; }  // the final name, symbolic links resolved
  const std::filesystem::path& temporary() const { return temporary_; }
  int descriptor() const { return lock_.descriptor(); }  // of the temporary file, for writing

  void put_in_place();  // flushes and renames it; call it once

 private:
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty: it is in place
  FileLock lock_;                    // of the temporary file: says that the writer is alive
};

class AtomicFile {
 public:
  // Creates the temporary file; the folder must exist.
  explicit AtomicFile(const std::filesystem::path& path) : file_(path) {}

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();  // call it once, as the last call

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  Replacement file_;
  bool committed_ = false;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

// The file that writing to `path` replaces: itself, or the target of a symbolic link. Error if its folder does not
// exist, or if something exists there that is not a regular file.
std::filesystem::path replaced_by_writing(const std::filesystem::path& path);

// The entries of a folder, sorted by name; empty, and `error` set, if it cannot be read. std::filesystem's iterators
// end the process if memory runs out.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& error);

// Flushes a file's contents, or a folder's list of names, to the disk.
void flush_to_disk(const std::filesystem::path& path);

}  // namespace isobar
