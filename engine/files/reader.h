// Reading files: at any offset, whole, or in pieces.
//
// Only regular files are read: a pipe or a device may never end. Interrupted and short reads are repeated. Every
// failure throws an Error with the file's name and the system's message. A mapping of the file would be cheaper, but
// the process would end by SIGBUS if the file is truncated meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "engine/files/descriptor.h"

namespace isobar {

// An open file, which is read at given offsets. Thread-safe.
class FileReader {
 public:
  // name: the first words of every error; empty: the path and a colon.
  explicit FileReader(const std::filesystem::path& path, std::string name = "");

  std::size_t size() const { return size_; }  // in bytes, when it was opened

  // Fills `out`. If the file ends before, throws an Error with the name and `ends`.
  void read(std::uint64_t offset, std::span<std::byte> out,
            const char* ends = "is being cut off while it is read") const;
  // Fills `out` as far as the file goes; returns the number of bytes.
  std::size_t read_up_to_end(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string name_;
  Descriptor descriptor_;
  std::size_t size_ = 0;
};

// The whole of a file as text. Error if it has more than `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes = SIZE_MAX);

// The same in pieces, from the first byte on.
void read_file_in_pieces(const std::filesystem::path& path,
                         const std::function<void(std::span<const std::byte> piece)>& take);

}  // namespace isobar
