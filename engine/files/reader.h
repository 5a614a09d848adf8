// Reading files: at any place, whole, or piece by piece.
//
// Only regular files are read: a pipe or a device need not end. Calls that a signal interrupts or that come back with
// less than was asked for are made again. Every failure is one Error that names the file and says what the system said.
// A mapping of the file would be cheaper, but ends the process (SIGBUS) where somebody cuts the file off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "engine/files/descriptor.h"

namespace isobar {

// An open file, read at given offsets; from any thread.
class FileReader {
 public:
  // name: begins the sentence of every error; empty: the path and a colon.
  explicit FileReader(const std::filesystem::path& path, std::string name = "");

  std::size_t size() const { return size_; }  // in bytes, when it was opened

  // As many bytes as `out` has. Error where the file ends before: the name, and this end of a sentence.
  void read(std::uint64_t offset, std::span<std::byte> out,
            const char* ends = "is being cut off while it is read") const;
  // The same up to the end of the file; returns the number of bytes.
  std::size_t read_up_to_end(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::string name_;
  Descriptor descriptor_;
  std::size_t size_ = 0;
};

// The whole of a file as text; Error where it has more than `most_bytes`.
std::string read_file(const std::filesystem::path& path, std::size_t most_bytes = SIZE_MAX);

// The same in pieces, from the first byte on.
void read_file_in_pieces(const std::filesystem::path& path,
                         const std::function<void(std::span<const std::byte> piece)>& take);

}  // namespace isobar
