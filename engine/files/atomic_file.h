// Files that appear under their name whole or not at all.
//
// AtomicFile writes to a hidden neighbour of the final name; commit() flushes it to the disk, renames it over the final
// name and flushes the folder. Whatever happens before the rename (an error, a full disk, kill -9) leaves the final
// name as it was. An AtomicFile that is destroyed without commit() removes its temporary file. Every failure throws an
// Error that names the final path and says what the system said. A symbolic link stays, and what it leads to is
// replaced; a folder, a device or a pipe is refused. A file that is replaced hands its permissions on. Any number of
// writers may write the same file at once: each has a temporary file of its own, and the last commit() stays.
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

// A new file that is to take the place of `path`: for writers that open it by its name, such as libraries.
class Replacement {
 public:
  // Creates the temporary file, and removes what writers of the same path left that were killed. The folder must exist.
  explicit Replacement(const std::filesystem::path& path);
  ~Replacement();  // removes the temporary file, if it is not in place
  Replacement(const Replacement&) = delete;
  Replacement& operator=(const Replacement&) = delete;

  const std::filesystem::path& path() const { return path_; }  // the final name, symbolic links followed
  const std::filesystem::path& temporary() const { return temporary_; }
  int descriptor() const { return lock_.descriptor(); }  // of the temporary file, for writing

  void put_in_place();  // flushes and renames it; once

 private:
  void discard() noexcept;

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty: in place
  FileLock lock_;                    // of the temporary file: tells a living writer from a killed one
};

class AtomicFile {
 public:
  // Creates the temporary file; the folder must exist.
  explicit AtomicFile(const std::filesystem::path& path) : file_(path) {}

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();  // once, and nothing after it

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  Replacement file_;
  bool committed_ = false;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

// The file that is replaced by writing to `path`: itself, or what a symbolic link leads to. Error where its folder does
// not exist, or where something is there that is no regular file.
std::filesystem::path replaced_by_writing(const std::filesystem::path& path);

// What lies in a folder, in the order of the names; nothing, and `error` set, where it cannot be read.
// std::filesystem's iterators end the process where memory runs out.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder, std::error_code& error);

// Flushes a file's contents, or a folder's list of names, to the disk.
void flush_to_disk(const std::filesystem::path& path);

}  // namespace isobar
