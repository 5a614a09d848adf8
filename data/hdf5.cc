#include "data/hdf5.h"

#include <hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "engine/atomic_file.h"
#include "kernels/common/check.h"

namespace isobar::hdf5 {
namespace {

// Beyond this many chunks their addresses are not asked for: each question walks the index from its start.
constexpr hsize_t kMostAddresses = 2048;
// A longer list of texts in an attribute is not believed.
constexpr hssize_t kMostAttributeTexts = 1 << 16;

// Holds the one lock of the library. The library keeps its error printing a thread, hence the switch here.
class Lock {
 public:
  Lock() : guard_(mutex()) {
    // Left to itself, the library closes files once more when the process ends, and crashes on one it could not flush.
    static const herr_t no_cleanup = H5dont_atexit();
    static_cast<void>(no_cleanup);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  std::lock_guard<std::mutex> guard_;
};

// An HDF5 identifier and the function that closes it.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);
  Handle() = default;
  Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), closer_(other.closer_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(closer_, other.closer_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) closer_(id_);
  }
  explicit operator bool() const { return id_ >= 0; }
  hid_t get() const { return id_; }
  bool close() { return closer_(std::exchange(id_, -1)) >= 0; }

 private:
  hid_t id_ = -1;
  Closer closer_ = nullptr;
};

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
  H5Sselect_hyperslab(space, H5S_SELECT_SET, sizes(start).data(), nullptr, sizes(count).data(), nullptr);
  return {H5Screate_simple(static_cast<int>(count.size()), sizes(count).data(), nullptr), H5Sclose};
}

void describe_type(hid_t type, DatasetInfo& info) {
  const std::string bits = std::to_string(8 * H5Tget_size(type)) + "-bit ";
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      info.type = H5Tget_size(type) == 4 ? Type::fp32 : H5Tget_size(type) == 8 ? Type::fp64 : Type::other;
      info.type_name = bits + "float";
      break;
    case H5T_INTEGER:
      info.type = Type::integer;
      info.type_name = bits + "integer";
      break;
    case H5T_STRING:
      info.type = Type::text;
      info.type_name = "text";
      break;
    default:
      info.type_name = "compound or other";
  }
}

// How many chunks cover the dataset, in each dimension.
std::vector<hsize_t> chunk_grid(std::span<const std::int64_t> shape, std::span<const std::int64_t> chunk) {
  std::vector<hsize_t> grid;
  for (std::size_t d = 0; d < shape.size(); ++d)
    grid.push_back(static_cast<hsize_t>((shape[d] + chunk[d] - 1) / chunk[d]));
  return grid;
}

hsize_t product(std::span<const hsize_t> extents) {
  hsize_t result = 1;
  for (hsize_t extent : extents) result *= extent;
  return result;
}

hsize_t stored_chunks(const Handle& dataset) {
  const Handle space(H5Dget_space(dataset.get()), H5Sclose);
  hsize_t stored = 0;
  H5Dget_num_chunks(dataset.get(), space.get(), &stored);
  return stored;
}

Layout layout_of(const Handle& dataset, hid_t type) {
  const Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose);
  Layout layout;
  layout.native = H5Tequal(type, H5T_IEEE_F32LE) > 0;
  if (H5Pget_external_count(creation.get()) > 0) return layout;
  const H5D_layout_t kind = H5Pget_layout(creation.get());
  if (kind == H5D_CONTIGUOUS) {
    H5D_space_status_t status{};
    H5Dget_space_status(dataset.get(), &status);
    const haddr_t offset = H5Dget_offset(dataset.get());
    // Space that was never allocated reads as the fill value, and its offset means nothing.
    if (status != H5D_SPACE_STATUS_ALLOCATED || offset == HADDR_UNDEF) return layout;
    layout.kind = Layout::Kind::contiguous;
    layout.offset = offset;
  } else if (kind == H5D_CHUNKED) {
    const std::vector<std::int64_t> shape = shape_of(dataset);
    std::vector<hsize_t> chunk(shape.size());
    H5Pget_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    layout.chunk.assign(chunk.begin(), chunk.end());
    // A chunk that was never written reads as the fill value, which the library knows.
    if (stored_chunks(dataset) == product(chunk_grid(shape, layout.chunk))) layout.kind = Layout::Kind::chunked;
    for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
      std::size_t parameters = 0;
      unsigned flags = 0, config = 0;
      char name[64] = "";
      const H5Z_filter_t filter = H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags, &parameters, nullptr,
                                                 sizeof name, name, &config);
      if (H5Zfilter_avail(filter) <= 0) layout.missing_filter = name[0] ? name : "filter " + std::to_string(filter);
      layout.filters.push_back(filter == H5Z_FILTER_SHUFFLE   ? Filter::shuffle
                               : filter == H5Z_FILTER_DEFLATE ? Filter::deflate
                                                              : Filter::other);
    }
  }
  return layout;
}

// `where` names file and dataset for the message of an error.
std::vector<std::string> read_text(const std::string& where, hid_t object, hid_t type, std::size_t count,
                                   herr_t (*read)(hid_t object, hid_t type, void* buffer)) {
  std::vector<std::string> result;
  if (H5Tis_variable_str(type) > 0) {
    const Handle memory(H5Tcopy(type), H5Tclose);
    std::vector<char*> pointers(count, nullptr);
    ISOBAR_CHECK(read(object, memory.get(), pointers.data()) >= 0, where, ": its text cannot be read");
    for (char* pointer : pointers) {
      result.emplace_back(pointer ? pointer : "");
      if (pointer) H5free_memory(pointer);
    }
    return result;
  }
  const std::size_t width = H5Tget_size(type);
  std::string buffer(count * width, '\0');
  ISOBAR_CHECK(read(object, type, buffer.data()) >= 0, where, ": its text cannot be read");
  for (std::size_t i = 0; i < count; ++i) {
    std::string entry = buffer.substr(i * width, width);
    entry = entry.substr(0, entry.find('\0'));
    entry.erase(entry.find_last_not_of(' ') + 1);
    result.push_back(std::move(entry));
  }
  return result;
}

// Texts of equal width beside one another, as the library wants them.
struct TextTable {
  std::size_t width = 1;
  std::string bytes;

  explicit TextTable(std::span<const std::string> values) {
    for (const std::string& value : values) width = std::max(width, value.size());
    for (std::string value : values) {
      value.resize(width, '\0');
      bytes += value;
    }
  }
};

// Without times of creation, so that the same values make the same bytes.
Handle creation_list() {
  Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(list.get(), false);
  return list;
}

Handle text_type(std::size_t width) {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.get(), width);
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  return type;
}

}  // namespace

struct File::Handles {
  Handle file;
  std::string temporary;  // being written: the name until close(); empty: open for reading
  mutable std::map<std::string, Handle> datasets;

  ~Handles() {
    const Lock lock;
    datasets.clear();
    file = Handle();
    if (!temporary.empty()) ::unlink(temporary.c_str());
  }

  // The caller holds the lock, here and below.
  hsize_t user_block() const {
    const Handle creation(H5Fget_create_plist(file.get()), H5Pclose);
    hsize_t size = 0;
    H5Pget_userblock(creation.get(), &size);
    return size;
  }

  const Handle& dataset(const std::string& path, const std::string& name) const {
    const auto found = datasets.find(name);
    if (found != datasets.end()) return found->second;
    ISOBAR_CHECK(H5Lexists(file.get(), name.c_str(), H5P_DEFAULT) > 0, path, " has no dataset '", name, "'");
    Handle opened(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
    ISOBAR_CHECK(opened, path, ": '", name, "' cannot be opened: it is damaged, no dataset, or of a newer HDF5 format");
    return datasets.emplace(name, std::move(opened)).first->second;
  }

  void create(const std::string& path, const std::string& name, hid_t type, std::span<const std::int64_t> shape,
              hid_t creation) {
    const Handle space(H5Screate_simple(static_cast<int>(shape.size()), sizes(shape).data(), nullptr), H5Sclose);
    Handle made(H5Dcreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
    ISOBAR_CHECK(made, path, ": cannot create the dataset '", name, "'");
    datasets.emplace(name, std::move(made));
  }
};

namespace {

template <class Handles>
void write_numbers(Handles& handles, const std::string& path, const std::string& name,
                   std::span<const std::int64_t> shape, const Storage& storage, hid_t file_type, hid_t memory_type,
                   const void* values) {
  const Lock lock;
  const Handle creation = creation_list();
  if (!storage.chunk.empty()) {
    H5Pset_chunk(creation.get(), static_cast<int>(storage.chunk.size()), sizes(storage.chunk).data());
    if (storage.shuffle) H5Pset_shuffle(creation.get());
    if (storage.checksum) H5Pset_fletcher32(creation.get());
    if (storage.deflate > 0) H5Pset_deflate(creation.get(), static_cast<unsigned>(storage.deflate));
  }
  handles.create(path, name, file_type, shape, creation.get());
  ISOBAR_CHECK(H5Dwrite(handles.dataset(path, name).get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0,
               path, ": cannot write the dataset '", name, "'");
}

}  // namespace

File::File(const std::string& path) : path_(path), handles_(std::make_unique<Handles>()) {}
File::File(File&&) noexcept = default;
File& File::operator=(File&&) noexcept = default;
File::~File() = default;

File File::open(const std::string& path) {
  ISOBAR_CHECK(std::filesystem::exists(path), path, " does not exist");
  ISOBAR_CHECK(!std::filesystem::is_directory(path), path, " is a folder, not an HDF5 file");
  ISOBAR_CHECK(::access(path.c_str(), R_OK) == 0, path, " cannot be read: permission denied");
  File result(path);
  const Lock lock;
  ISOBAR_CHECK(H5Fis_hdf5(path.c_str()) > 0, path, " is not an HDF5 file");
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), false, true);
  result.handles_->file = Handle(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
  ISOBAR_CHECK(result.handles_->file, path, " is a truncated or damaged HDF5 file");
  return result;
}

File File::create(const std::string& path) {
  const std::filesystem::path final_name = replaced_by_writing(path);
  const auto temporary =
      final_name.parent_path() / ("." + final_name.filename().string() + "." + std::to_string(::getpid()) + ".tmp");
  File result(final_name.string());
  const Lock lock;
  result.handles_->file = Handle(H5Fcreate(temporary.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  ISOBAR_CHECK(result.handles_->file, path, " cannot be created");
  result.handles_->temporary = temporary;
  return result;
}

void File::close() {
  {
    const Lock lock;
    bool whole = true;
    for (auto& [name, dataset] : handles_->datasets) whole = dataset.close() && whole;
    handles_->datasets.clear();
    whole = handles_->file.close() && whole;
    if (handles_->temporary.empty()) return;
    ISOBAR_CHECK(whole, path_, " cannot be written: is the disk full?");
  }
  flush_to_disk(handles_->temporary);
  ISOBAR_CHECK(std::rename(handles_->temporary.c_str(), path_.c_str()) == 0, path_, " cannot be put in its place");
  handles_->temporary.clear();
}

bool File::has(const std::string& dataset) const {
  const Lock lock;
  return H5Lexists(handles_->file.get(), dataset.c_str(), H5P_DEFAULT) > 0;
}

std::vector<std::string> File::names() const {
  const Lock lock;
  std::vector<std::string> found;
  const auto visit = [](hid_t, const char* name, const H5L_info_t*, void* out) -> herr_t {
    static_cast<std::vector<std::string>*>(out)->push_back(name);
    return 0;
  };
  H5Literate(handles_->file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, &found);
  return found;
}

DatasetInfo File::info(const std::string& dataset) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const Handle type(H5Dget_type(handle.get()), H5Tclose);
  DatasetInfo info;
  info.shape = shape_of(handle);
  describe_type(type.get(), info);
  info.layout = layout_of(handle, type.get());
  return info;
}

void File::read(const std::string& dataset, std::span<const std::int64_t> start, std::span<const std::int64_t> count,
                float* out) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const Handle space(H5Dget_space(handle.get()), H5Sclose);
  const Handle memory = box(space.get(), start, count);
  ISOBAR_CHECK(H5Dread(handle.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT, out) >= 0, path_,
               ": cannot read '", dataset, "': the file is truncated or damaged");
}

std::vector<double> File::numbers(const std::string& dataset) const {
  const DatasetInfo about = info(dataset);
  ISOBAR_CHECK(about.type == Type::fp32 || about.type == Type::fp64 || about.type == Type::integer, path_,
               ": the dataset '", dataset, "' holds ", about.type_name, "; expected numbers");
  const Lock lock;
  std::size_t count = 1;
  for (std::int64_t extent : about.shape) count *= static_cast<std::size_t>(extent);
  std::vector<double> values(count);
  ISOBAR_CHECK(H5Dread(handles_->dataset(path_, dataset).get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       values.data()) >= 0,
               path_, ": cannot read '", dataset, "': the file is truncated or damaged");
  return values;
}

std::vector<std::string> File::strings(const std::string& dataset) const {
  const DatasetInfo about = info(dataset);
  ISOBAR_CHECK(about.type == Type::text && about.shape.size() == 1, path_, ": the dataset '", dataset, "' holds ",
               about.type_name, "; expected a list of names");
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const Handle type(H5Dget_type(handle.get()), H5Tclose);
  return read_text(path_ + ": '" + dataset + "'", handle.get(), type.get(), static_cast<std::size_t>(about.shape[0]),
                   [](hid_t object, hid_t memory, void* buffer) {
                     return H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer);
                   });
}

std::optional<std::string> File::attribute(const std::string& dataset, const std::string& name) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  if (H5Aexists(handle.get(), name.c_str()) <= 0) return std::nullopt;
  const Handle attribute(H5Aopen(handle.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  const Handle type(H5Aget_type(attribute.get()), H5Tclose);
  if (H5Tget_class(type.get()) != H5T_STRING) return std::nullopt;
  return read_text(path_ + ": '" + dataset + "'", attribute.get(), type.get(), 1, H5Aread)[0];
}

std::vector<std::string> File::attribute_list(const std::string& dataset, const std::string& name) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  if (H5Aexists(handle.get(), name.c_str()) <= 0) return {};
  const Handle attribute(H5Aopen(handle.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  const Handle type(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(type.get()) != H5T_STRING || count <= 0) return {};
  ISOBAR_CHECK(count <= kMostAttributeTexts, path_, ": the attribute '", name, "' of '", dataset, "' has ", count,
               " entries, which are too many");
  return read_text(path_ + ": '" + dataset + "'", attribute.get(), type.get(), static_cast<std::size_t>(count),
                   H5Aread);
}

std::vector<ChunkAddress> File::chunk_addresses(const std::string& dataset) const {
  const DatasetInfo about = info(dataset);
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const std::size_t rank = about.shape.size();
  const std::vector<hsize_t> grid = chunk_grid(about.shape, about.layout.chunk);
  const hsize_t stored = stored_chunks(handle);
  if (stored != product(grid) || stored > kMostAddresses || handles_->user_block() > 0) return {};

  const Handle space(H5Dget_space(handle.get()), H5Sclose);
  std::vector<ChunkAddress> addresses(stored);
  std::vector<hsize_t> start(rank);
  for (hsize_t i = 0; i < stored; ++i) {
    ChunkAddress address;
    haddr_t offset = HADDR_UNDEF;
    hsize_t bytes = 0;
    unsigned mask = 0;
    ISOBAR_CHECK(H5Dget_chunk_info(handle.get(), space.get(), i, start.data(), &mask, &offset, &bytes) >= 0 &&
                     offset != HADDR_UNDEF,
                 path_, ": cannot find the chunks of '", dataset, "': the file is truncated or damaged");
    std::size_t index = 0;
    for (std::size_t d = 0; d < rank; ++d)
      index = index * grid[d] + start[d] / static_cast<hsize_t>(about.layout.chunk[d]);
    addresses[index] = {offset, bytes, mask};
  }
  return addresses;
}

std::vector<unsigned char> File::raw_chunk(const std::string& dataset, std::span<const std::int64_t> start,
                                           std::uint32_t* skipped_filters) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  hsize_t bytes = 0;
  ISOBAR_CHECK(H5Dget_chunk_storage_size(handle.get(), sizes(start).data(), &bytes) >= 0, path_,
               ": cannot find a chunk of '", dataset, "': the file is truncated or damaged");
  std::vector<unsigned char> raw(bytes);
  std::uint32_t mask = 0;
  if (bytes > 0)
    ISOBAR_CHECK(H5Dread_chunk(handle.get(), H5P_DEFAULT, sizes(start).data(), &mask, raw.data()) >= 0, path_,
                 ": cannot read a chunk of '", dataset, "': the file is truncated or damaged");
  *skipped_filters = mask;
  return raw;
}

void File::write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const float> values,
                 const Storage& storage) {
  write_numbers(*handles_, path_, dataset, shape, storage, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values.data());
}

void File::write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const double> values,
                 const Storage& storage) {
  write_numbers(*handles_, path_, dataset, shape, storage, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, values.data());
}

void File::write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const std::int64_t> values,
                 const Storage& storage) {
  write_numbers(*handles_, path_, dataset, shape, storage, H5T_STD_I64LE, H5T_NATIVE_INT64, values.data());
}

void File::write(const std::string& dataset, std::span<const std::string> values) {
  const TextTable table(values);
  const Lock lock;
  const Handle type = text_type(table.width);
  const auto count = static_cast<std::int64_t>(values.size());
  handles_->create(path_, dataset, type.get(), std::span(&count, 1), creation_list().get());
  ISOBAR_CHECK(H5Dwrite(handles_->dataset(path_, dataset).get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                        table.bytes.data()) >= 0,
               path_, ": cannot write the dataset '", dataset, "'");
}

void File::reserve(const std::string& dataset, std::span<const std::int64_t> shape) {
  const Lock lock;
  const Handle creation = creation_list();
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  handles_->create(path_, dataset, H5T_IEEE_F32LE, shape, creation.get());
}

void File::write_box(const std::string& dataset, std::span<const std::int64_t> start,
                     std::span<const std::int64_t> count, const float* values) {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const Handle space(H5Dget_space(handle.get()), H5Sclose);
  const Handle memory = box(space.get(), start, count);
  ISOBAR_CHECK(H5Dwrite(handle.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT, values) >= 0, path_,
               ": cannot write the dataset '", dataset, "'");
}

void File::write_attribute(const std::string& dataset, const std::string& name, const std::string& value) {
  const Lock lock;
  const Handle type = text_type(std::max<std::size_t>(value.size(), 1));
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(H5Acreate2(handles_->dataset(path_, dataset).get(), name.c_str(), type.get(), space.get(),
                                    H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  ISOBAR_CHECK(attribute && H5Awrite(attribute.get(), type.get(), value.c_str()) >= 0, path_,
               ": cannot write the attribute '", name, "' of '", dataset, "'");
}

void File::write_attribute(const std::string& dataset, const std::string& name, std::span<const std::string> values) {
  const TextTable table(values);
  const Lock lock;
  const Handle type = text_type(table.width);
  const hsize_t count = values.size();
  const Handle space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Handle attribute(H5Acreate2(handles_->dataset(path_, dataset).get(), name.c_str(), type.get(), space.get(),
                                    H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  ISOBAR_CHECK(attribute && H5Awrite(attribute.get(), type.get(), table.bytes.data()) >= 0, path_,
               ": cannot write the attribute '", name, "' of '", dataset, "'");
}

}  // namespace isobar::hdf5
