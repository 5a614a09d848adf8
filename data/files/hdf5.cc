#include "data/files/hdf5.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <limits>
#include <utility>

#include "data/files/hdf5_open_file.h"
#include "data/files/hdf5_text.h"
#include "data/files/hdf5_trial.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar::hdf5 {
namespace {

// Of a dataset beside the fields, which is read whole.
constexpr std::int64_t kMaxValues = std::int64_t{1} << 24;

constexpr unsigned kInOrder = H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED;

void set_chunks(const Handle& creation, const Storage& storage) {
  if (storage.chunk.empty()) return;
  H5Pset_chunk(creation.get(), static_cast<int>(storage.chunk.size()), sizes(storage.chunk).data());
  if (storage.shuffle) H5Pset_shuffle(creation.get());
  if (storage.checksum) H5Pset_fletcher32(creation.get());
  if (storage.deflate > 0) H5Pset_deflate(creation.get(), static_cast<unsigned>(storage.deflate));
}

// How many values a dataset beside the fields has, before memory is taken for them.
std::size_t bounded_count(const std::string& path, const std::string& dataset, std::span<const std::int64_t> shape) {
  const std::optional<std::int64_t> count = product_of(shape);
  ISOBAR_CHECK(count && *count <= kMaxValues, path, ": '", dataset, "' has more than ", kMaxValues,
               " values, the most that isobar reads of what lies beside the fields");
  return static_cast<std::size_t>(*count);
}

void check_length_of(const std::string& path, std::uint64_t now, std::uint64_t before) {
  ISOBAR_CHECK(now >= before, path, " is truncated: it was cut from ", before, " to ", now, " bytes while in use");
}

}  // namespace

std::string library_version() {
  const Lock lock;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return concat(major, ".", minor, ".", release);
}

File::Handles::~Handles() {
  const Lock lock;
  datasets.clear();
  file = Handle();
}

const Handle& File::Handles::dataset(const std::string& path, const std::string& name) const {
  const auto found = datasets.find(name);
  if (found != datasets.end()) return found->second;
  ISOBAR_CHECK(H5Lexists(file.get(), name.c_str(), H5P_DEFAULT) > 0, path, " has no dataset '", name, "'");
  Handle opened(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT), H5Dclose);
  ISOBAR_CHECK(opened, path, ": '", name, "' cannot be opened: it is damaged, no dataset, or of a newer HDF5 format");
  ISOBAR_CHECK(lies_in(file, opened), path, ": '", name,
               "' is a link into another file; isobar reads what lies in the file itself");
  for (Source& source : sources_of(path, path + ": '" + name + "'", opened)) sources.push_back(std::move(source));
  return datasets.emplace(name, std::move(opened)).first->second;
}

void File::Handles::check_length(const std::string& path) const {
  void* descriptor = nullptr;
  struct stat now = {};
  if (H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &descriptor) >= 0 &&
      ::fstat(*static_cast<const int*>(descriptor), &now) == 0)
    check_length_of(path, static_cast<std::uint64_t>(now.st_size), bytes);
  for (const Source& source : sources) check_length_of(source.path, size_of(source.path).value_or(0), source.bytes);
}

void File::Handles::read(const std::string& path, const std::string& name, std::span<const std::int64_t> start,
                         std::span<const std::int64_t> count, hid_t memory_type, void* out) const {
  const Handle& handle = dataset(path, name);
  const Handle space(H5Dget_space(handle.get()), H5Sclose);
  const Handle memory = box(space.get(), start, count);
  ISOBAR_CHECK(H5Dread(handle.get(), memory_type, memory.get(), space.get(), H5P_DEFAULT, out) >= 0, path,
               ": cannot read '", name, "': the file is truncated or damaged");
  check_length(path);
}

// Without times of creation, so that the same values make the same bytes.
Handle File::Handles::creation_list() const {
  Handle list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(list.get(), false);
  if (style == Style::netcdf) H5Pset_attr_creation_order(list.get(), kInOrder);
  return list;
}

void File::Handles::create(const std::string& path, const std::string& name, hid_t type,
                           std::span<const std::int64_t> shape, hid_t creation, hid_t access) {
  const Handle space(H5Screate_simple(static_cast<int>(shape.size()), sizes(shape).data(), nullptr), H5Sclose);
  Handle made(H5Dcreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, creation, access), H5Dclose);
  ISOBAR_CHECK(made, path, ": cannot create the dataset '", name, "'", because());
  datasets.emplace(name, std::move(made));
}

void File::Handles::write(const std::string& path, const std::string& name, std::span<const std::int64_t> shape,
                          const Storage& storage, hid_t file_type, hid_t memory_type, const void* values) {
  const Handle creation = creation_list();
  set_chunks(creation, storage);
  create(path, name, file_type, shape, creation.get());
  ISOBAR_CHECK(H5Dwrite(dataset(path, name).get(), memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0, path,
               ": cannot write the dataset '", name, "'", because());
}

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
  if (const auto failure = try_to_walk(path))
    throw_error(path, " is damaged: the HDF5 library ", *failure, " when it reads its structure");
  result.handles_->file = open_for_reading(path);
  ISOBAR_CHECK(result.handles_->file, path, " is a truncated or damaged HDF5 file");
  result.handles_->bytes = size_of(path).value_or(0);
  return result;
}

File File::create(const std::string& path, Style style) {
  File result(replaced_by_writing(path).string());
  const Replacement& replacement = result.handles_->replacement.emplace(path);
  result.handles_->style = style;
  const Lock lock;
  // The library would lock the file that the replacement has locked already.
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose), creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_file_locking(access.get(), false, true);
  if (style == Style::netcdf) {
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);
    H5Pset_link_creation_order(creation.get(), kInOrder);
    H5Pset_attr_creation_order(creation.get(), kInOrder);
    H5Pset_obj_track_times(creation.get(), false);
  }
  result.handles_->file =
      Handle(H5Fcreate(replacement.temporary().c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
  ISOBAR_CHECK(result.handles_->file, path, " cannot be created");
  return result;
}

void File::close() {
  {
    const Lock lock;
    std::string failure;  // of the first that failed: what fails after it does so because of it
    const auto close = [&](Handle& handle) {
      if (!handle.close() && failure.empty()) failure = because();
    };
    for (auto& [name, dataset] : handles_->datasets) close(dataset);
    handles_->datasets.clear();
    close(handles_->file);
    if (!handles_->replacement) return;
    ISOBAR_CHECK(failure.empty(), path_, " cannot be written", failure);
  }
  handles_->replacement->put_in_place();
  handles_->replacement.reset();
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

void File::read(const std::string& dataset, std::span<const std::int64_t> start, std::span<const std::int64_t> count,
                float* out) const {
  const Lock lock;
  handles_->read(path_, dataset, start, count, H5T_NATIVE_FLOAT, out);
}

void File::read(const std::string& dataset, std::span<const std::int64_t> start, std::span<const std::int64_t> count,
                double* out) const {
  const Lock lock;
  handles_->read(path_, dataset, start, count, H5T_NATIVE_DOUBLE, out);
}

std::vector<double> File::numbers(const std::string& dataset) const {
  const DatasetInfo about = info(dataset);
  ISOBAR_CHECK(about.type == Type::fp32 || about.type == Type::fp64 || about.type == Type::integer, path_,
               ": the dataset '", dataset, "' holds ", about.type_name, "; expected numbers");
  std::vector<double> values(bounded_count(path_, dataset, about.shape));
  const Lock lock;
  ISOBAR_CHECK(H5Dread(handles_->dataset(path_, dataset).get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                       values.data()) >= 0,
               path_, ": cannot read '", dataset, "': the file is truncated or damaged");
  handles_->check_length(path_);
  return values;
}

std::vector<std::string> File::strings(const std::string& dataset) const {
  const DatasetInfo about = info(dataset);
  ISOBAR_CHECK(about.type == Type::text && about.shape.size() == 1, path_, ": the dataset '", dataset, "' holds ",
               about.type_name, "; expected a list of names");
  const std::size_t count = bounded_count(path_, dataset, about.shape);
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const Handle type(H5Dget_type(handle.get()), H5Tclose);
  const auto text = read_text(path_ + ": '" + dataset + "'", handle.get(), type.get(), count,
                              [](hid_t object, hid_t memory, void* buffer) {
                                return H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer);
                              });
  handles_->check_length(path_);
  return text;
}

void File::write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const float> values,
                 const Storage& storage) {
  const Lock lock;
  handles_->write(path_, dataset, shape, storage, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values.data());
}

void File::write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const double> values,
                 const Storage& storage) {
  const Lock lock;
  handles_->write(path_, dataset, shape, storage, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, values.data());
}

void File::write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const std::int64_t> values,
                 const Storage& storage) {
  const Lock lock;
  handles_->write(path_, dataset, shape, storage, H5T_STD_I64LE, H5T_NATIVE_INT64, values.data());
}

void File::write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const std::int32_t> values,
                 const Storage& storage) {
  const Lock lock;
  handles_->write(path_, dataset, shape, storage, H5T_STD_I32LE, H5T_NATIVE_INT32, values.data());
}

void File::write(const std::string& dataset, std::span<const std::string> values) {
  const TextTable table(values);
  const Lock lock;
  const Handle type = text_type(table.width);
  const auto count = static_cast<std::int64_t>(values.size());
  handles_->create(path_, dataset, type.get(), std::span(&count, 1), handles_->creation_list().get());
  ISOBAR_CHECK(H5Dwrite(handles_->dataset(path_, dataset).get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT,
                        table.bytes.data()) >= 0,
               path_, ": cannot write the dataset '", dataset, "'", because());
}

void File::reserve(const std::string& dataset, std::span<const std::int64_t> shape, Room room) {
  const Lock lock;
  const Handle creation = handles_->creation_list();
  if (room == Room::at_once) {
    H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  }
  handles_->create(path_, dataset, H5T_IEEE_F32LE, shape, creation.get());
}

void File::reserve(const std::string& dataset, std::span<const std::int64_t> shape, const Storage& storage) {
  const Lock lock;
  const Handle creation = handles_->creation_list(), access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  const float missing = std::numeric_limits<float>::quiet_NaN();
  set_chunks(creation, storage);
  H5Pset_fill_value(creation.get(), H5T_NATIVE_FLOAT, &missing);
  H5Pset_chunk_cache(access.get(), 0, 0, H5D_CHUNK_CACHE_W0_DEFAULT);
  handles_->create(path_, dataset, H5T_IEEE_F32LE, shape, creation.get(), access.get());
}

void File::write_box(const std::string& dataset, std::span<const std::int64_t> start,
                     std::span<const std::int64_t> count, const float* values) {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const Handle space(H5Dget_space(handle.get()), H5Sclose);
  const Handle memory = box(space.get(), start, count);
  ISOBAR_CHECK(H5Dwrite(handle.get(), H5T_NATIVE_FLOAT, memory.get(), space.get(), H5P_DEFAULT, values) >= 0, path_,
               ": cannot write the dataset '", dataset, "'", because());
}

}  // namespace isobar::hdf5
