// A folder with the parts of a fuzzed input as files, for parsers that open several files by their names.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace isobar::testing {

class InputFolder {
 public:
  InputFolder() {
    const bool has_memory = ::access("/dev/shm", W_OK) == 0;  // a disk would be slow
    path_ = std::string(has_memory ? "/dev/shm" : std::filesystem::temp_directory_path()) + "/isobar_fuzz_XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) std::abort();
  }
  ~InputFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  // Returns the path of the file.
  std::string write(const std::string& name, std::string_view contents) const {
    std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// The bytes before the first `end`, which are taken out of the input.
inline std::string_view part_before(std::string_view& input, std::string_view end) {
  const std::size_t at = input.find(end);
  const std::string_view part = input.substr(0, at);
  input.remove_prefix(at == std::string_view::npos ? input.size() : at + end.size());
  return part;
}

}  // namespace isobar::testing
