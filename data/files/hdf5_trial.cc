#include "data/files/hdf5_trial.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "data/files/chunks.h"
#include "data/files/hdf5.h"
#include "data/files/hdf5_handle.h"
#include "data/files/hdf5_layout.h"
#include "data/files/hdf5_objects.h"
#include "data/files/trial.h"
#include "kernels/common/checked_size.h"

namespace isobar::hdf5 {
namespace {

constexpr std::int64_t kMaxChunksTried = 1 << 20;  // takes a second
constexpr std::int64_t kMaxBytesWalked = 1 << 24;  // of a dataset or attribute that walk() reads whole

// Reads a small text or a small numeric object whole. False where memory was lacking.
bool walk_values(hid_t object, const Handle& space, const Handle& type,
                 herr_t (*read)(hid_t object, hid_t type, void* buffer)) {
  const H5T_class_t kind = H5Tget_class(type.get());
  const bool is_text = kind == H5T_STRING;
  if (!is_text && kind != H5T_INTEGER && kind != H5T_FLOAT) return true;
  const std::size_t width = is_text ? H5Tget_size(type.get()) : sizeof(double);
  const auto bytes = product_of(
      std::array<std::int64_t, 2>{H5Sget_simple_extent_npoints(space.get()), static_cast<std::int64_t>(width)});
  if (!bytes || *bytes > kMaxBytesWalked) return true;
  std::vector<char> buffer(static_cast<std::size_t>(*bytes));
  return read(object, is_text ? type.get() : H5T_NATIVE_DOUBLE, buffer.data()) >= 0 || !lacked_memory();
}

bool walk_attributes(hid_t object) {
  const auto visit = [](hid_t owner, const char* name, const H5A_info_t*, void*) -> herr_t {
    const Handle attribute(H5Aopen(owner, name, H5P_DEFAULT), H5Aclose);
    if (!attribute) return lacked_memory() ? -1 : 0;
    const Handle type(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
    return walk_values(attribute.get(), space, type, H5Aread) ? 0 : -1;
  };
  return H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, visit, nullptr) >= 0 || !lacked_memory();
}

// Reads the first and the last value of a dataset where the library may have to: of all but little-endian fp32 in the
// layouts that BoxReader reads by itself.
bool walk_ends(const Handle& dataset, const Handle& space, const Handle& type, const Handle& creation) {
  const H5D_layout_t layout = H5Pget_layout(creation.get());
  bool by_library = (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED) || H5Tequal(type.get(), H5T_IEEE_F32LE) <= 0;
  for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
    std::size_t parameters = 0;
    unsigned flags = 0, config = 0;
    const H5Z_filter_t filter =
        H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &parameters, nullptr, 0, nullptr, &config);
    by_library = by_library || (filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_DEFLATE);
  }
  const H5T_class_t kind = H5Tget_class(type.get());
  if (!by_library || (kind != H5T_INTEGER && kind != H5T_FLOAT)) return true;
  const std::vector<std::int64_t> shape = shape_of(dataset), ones(shape.size(), 1);
  for (const bool last : {false, true}) {
    std::vector<std::int64_t> at(shape.size(), 0);
    for (std::size_t d = 0; last && d < shape.size(); ++d) at[d] = shape[d] - 1;
    const Handle memory = box(space.get(), at, ones);
    float value = 0;
    if (H5Dread(dataset.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT, &value) < 0 && lacked_memory())
      return false;
  }
  return true;
}

bool walk_dataset(const Handle& dataset) {
  const Handle space(H5Dget_space(dataset.get()), H5Sclose), type(H5Dget_type(dataset.get()), H5Tclose);
  const Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose);
  H5D_space_status_t status{};
  H5Dget_space_status(dataset.get(), &status);
  H5Dget_storage_size(dataset.get());
  if (H5Pget_layout(creation.get()) == H5D_CHUNKED) {
    // The index is walked once to count, and each chunk looked up as by chunk_addresses().
    std::vector<hsize_t> chunk(H5S_MAX_RANK);
    H5Pget_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    const std::vector<std::int64_t> shape = shape_of(dataset),
                                    of_chunk(chunk.begin(), chunk.begin() + std::ssize(shape));
    const bool divides = std::ranges::none_of(of_chunk, [](std::int64_t extent) { return extent <= 0; });
    const std::int64_t stored = stored_chunks(dataset);
    if (divides && stored <= kMaxChunksTried && product_of(chunk_grid(shape, of_chunk)) == stored)
      for_each_chunk(shape, of_chunk, [&](const std::vector<hsize_t>& start) {
        hsize_t bytes = 0;
        H5Dget_chunk_storage_size(dataset.get(), start.data(), &bytes);
      });
  }
  const auto read = [](hid_t object, hid_t memory, void* buffer) {
    return H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer);
  };
  scales_of(dataset);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  return walk_attributes(dataset.get()) &&
         (rank <= 1 ? walk_values(dataset.get(), space, type, read) : walk_ends(dataset, space, type, creation));
}

// The datasets within groups, and the attributes of the root group.
bool walk_groups(const Handle& file) {
  const auto visit = [](hid_t root, const char* name, const H5O_info_t* about, void*) -> herr_t {
    if (about->type == H5O_TYPE_GROUP && std::string_view(name) == ".") return walk_attributes(root) ? 0 : -1;
    if (about->type != H5O_TYPE_DATASET || std::string_view(name).find('/') == std::string_view::npos) return 0;
    const Handle dataset(H5Dopen2(root, name, H5P_DEFAULT), H5Dclose);
    if (!dataset) return lacked_memory() ? -1 : 0;
    return walk_dataset(dataset) ? 0 : -1;
  };
  return H5Ovisit2(file.get(), H5_INDEX_NAME, H5_ITER_INC, visit, nullptr, H5O_INFO_BASIC) >= 0 || !lacked_memory();
}

// Asks the library for whatever isobar will ask it, of every dataset, to see whether it comes back: some damaged files
// crash it. Errors that it tells are met again by whoever asks. False where memory was lacking.
bool walk(const std::string& path) {
  const Handle file = open_for_reading(path);
  if (!file) return !lacked_memory();
  const auto visit = [](hid_t group, const char* name, const H5L_info_t*, void*) -> herr_t {
    const Handle dataset(H5Dopen2(group, name, H5P_DEFAULT), H5Dclose);
    if (!dataset) return lacked_memory() ? -1 : 0;
    return walk_dataset(dataset) ? 0 : -1;
  };
  const bool walked = H5Literate(file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, nullptr) >= 0;
  return (walked || !lacked_memory()) && walk_groups(file);
}

std::vector<std::string> trial_command;  // empty: forks

}  // namespace

std::optional<std::string> try_to_walk(const std::string& path) {
  if (trial_command.empty()) return trial([&] { return walk(path); });
  std::vector<std::string> command = trial_command;
  command.push_back(path);
  return trial(command);
}

void File::try_by(std::vector<std::string> command) {
  const Lock lock;
  trial_command = std::move(command);
}

void File::run_trial(const std::string& path) {
  isobar::run_trial([&] { return walk(path); });
}

}  // namespace isobar::hdf5
