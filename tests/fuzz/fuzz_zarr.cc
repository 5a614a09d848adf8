// A Zarr store of any metadata and chunks has arrays that can be read, or is an Error. Lines that begin with "@" name
// the files of the store: "@.zarray", "@c/0/0"; what follows is their content.
#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "data/files/stored_arrays.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"
#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxValues = 1 << 16;  // of an array: the memory is the caller's, not the reader's

// A folder in memory, if the system has one; every input gets it empty.
class Store {
 public:
  Store() {
    const fs::path shared = "/dev/shm";
    std::error_code ignored;
    std::string name = ((fs::is_directory(shared, ignored) ? shared : fs::temp_directory_path()) / "fuzz_XXXXXX");
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Store() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  const fs::path& path() const { return path_; }

  // Names with other characters, or more folders, are left out.
  void write(const std::string& name, std::string_view content) const {
    const bool is_plain = name.size() < 64 && name.find("..") == name.npos && name.find("//") == name.npos &&
                          name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_./") == name.npos;
    if (name.empty() || name.front() == '/' || name.back() == '/' || !is_plain) return;
    std::error_code ignored;
    fs::create_directories((path_ / name).parent_path(), ignored);
    std::ofstream(path_ / name, std::ios::binary) << content;
  }

 private:
  fs::path path_;
};

void write_files(const Store& store, std::string_view text) {
  for (std::size_t at = text.starts_with('@') ? 0 : text.find("\n@"); at < text.size();) {
    const std::size_t name = at + (text[at] == '@' ? 1 : 2), line = std::min(text.find('\n', name), text.size());
    const std::size_t next = std::min(text.find("\n@", line), text.size());
    store.write(std::string(text.substr(name, line - name)), text.substr(std::min(line + 1, next), next - line));
    at = next;
  }
}

void read_ends(isobar::BoxReader& reader) {
  const auto& shape = reader.shape();
  const auto values = isobar::product_of(shape);
  if (!values || *values == 0) return;
  std::vector<std::int64_t> start, one(shape.size(), 1);
  for (const std::int64_t extent : shape) start.push_back(extent - 1);
  float last = 0;
  reader.read(start, one, &last);
  if (*values > kMaxValues) return;
  std::vector<double> all(static_cast<std::size_t>(*values));
  reader.read(std::vector<std::int64_t>(shape.size(), 0), shape, all.data());
}

}  // namespace

FUZZ_TARGET(zarr) {
  const Store store;
  write_files(store, {reinterpret_cast<const char*>(data), size});
  try {
    const auto arrays = isobar::open_stored_arrays(store.path().string());
    for (const isobar::ArrayInfo& info : arrays->arrays()) {
      for (const auto missing : {isobar::zarr::MissingChunk::error, isobar::zarr::MissingChunk::fill_value}) {
        try {
          read_ends(*arrays->open(info.name, {}, missing));
        } catch (const isobar::Error&) {
        }
      }
    }
  } catch (const isobar::Error&) {
  }
  return 0;
}
