// Files that appear under their name whole or not at all.
//
// AtomicFile writes to a hidden neighbour of the final name; commit() flushes it to the disk, renames it over the final
// name and flushes the folder. Whatever happens before the rename (an error, a full disk, kill -9) leaves the final
// name as it was. An AtomicFile that is destroyed without commit() removes its temporary file. Every failure throws an
// Error that names the final path and says what the system said. A symbolic link stays, and what it leads to is replaced;
// a folder, a device or a pipe is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace isobar {

class AtomicFile {
 public:
  // Creates the temporary file; the folder must exist.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void commit();  // once, and nothing after it

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::string_view contents);

// The file that is replaced by writing to `path`: itself, or what a symbolic link leads to. Error where its folder does
// not exist, or where something is there that is no regular file.
std::filesystem::path replaced_by_writing(const std::filesystem::path& path);

// The whole of a file as text; Error where it cannot be read.
std::string read_file(const std::filesystem::path& path);

// Flushes a file's contents, or a folder's list of names, to the disk.
void flush_to_disk(const std::filesystem::path& path);

}  // namespace isobar
