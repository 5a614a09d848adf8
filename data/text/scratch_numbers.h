// Numbers that are appended now and read again later, in a file without a name: it vanishes with its process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "engine/files/descriptor.h"

namespace isobar {

class ScratchNumbers {
 public:
  // In this folder. Error if no file can be made there.
  explicit ScratchNumbers(const std::filesystem::path& folder);

  void append(std::int64_t number);
  std::int64_t count() const { return count_; }
  // All numbers in their order, in pieces.
  void for_each_piece(const std::function<void(std::span<const std::int64_t>)>& take);

 private:
  void flush();

  std::filesystem::path folder_;
  Descriptor file_;
  std::vector<std::int64_t> pending_;
  std::int64_t count_ = 0, written_ = 0;
};

}  // namespace isobar
