#include "data/files/hdf5_handle.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace isobar::hdf5 {
namespace {

std::mutex& library_mutex() {
  static std::mutex instance;
  return instance;
}

// What the system said to the library's last call that failed (" because: no space left"); empty where it was not
// asked.
std::string system_reason() {
  std::string reason;
  const auto look = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    constexpr std::string_view kBefore = "error message = '";
    const std::string_view description = error->desc ? error->desc : "";
    const std::size_t at = description.find(kBefore);
    if (at == description.npos) return 0;
    const std::string_view rest = description.substr(at + kBefore.size());
    *static_cast<std::string*>(out) = rest.substr(0, rest.find('\''));
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look, &reason);
  return reason;
}

}  // namespace

Lock::Lock() : guard_(library_mutex()) {
  // Left to itself, the library closes files once more when the process ends, and crashes on one it could not flush.
  static const herr_t no_cleanup = H5dont_atexit();
  static_cast<void>(no_cleanup);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

std::string because() {
  const std::string reason = system_reason();
  return ": " + (reason.empty() ? "the HDF5 library does not say why" : reason);
}

bool lacked_memory() {
  bool lacked = false;
  const auto look = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->maj_num == H5E_RESOURCE) *static_cast<bool*>(out) = true;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look, &lacked);
  return lacked;
}

Handle open_for_reading(const std::string& path) {
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_sec2(access.get());
  H5Pset_file_locking(access.get(), false, true);
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose};
}

std::optional<std::uint64_t> size_of(const std::string& path) {
  struct stat about = {};
  if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  return static_cast<std::uint64_t>(about.st_size);
}

std::vector<hsize_t> sizes(std::span<const std::int64_t> extents) {
  return {extents.begin(), extents.end()};
}

std::vector<std::int64_t> shape_of(const Handle& dataset) {
  const Handle space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> extents(static_cast<std::size_t>(std::max(rank, 0)));
  H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
  return {extents.begin(), extents.end()};
}

Handle box(hid_t space, std::span<const std::int64_t> start, std::span<const std::int64_t> count) {
  if (!count.empty())  // a dataset without axes is a single value
    H5Sselect_hyperslab(space, H5S_SELECT_SET, sizes(start).data(), nullptr, sizes(count).data(), nullptr);
  return {H5Screate_simple(static_cast<int>(count.size()), sizes(count).data(), nullptr), H5Sclose};
}

}  // namespace isobar::hdf5
