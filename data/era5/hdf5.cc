#include "data/era5/hdf5.h"

#include <hdf5_hl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "data/era5/hdf5_handle.h"
#include "data/era5/hdf5_places.h"
#include "data/era5/trial.h"
#include "engine/files/atomic_file.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar::hdf5 {
namespace {

// Of a dataset beside the fields, which is read whole.
constexpr std::int64_t kMostValues = std::int64_t{1} << 24;
constexpr std::int64_t kMostTextBytes = std::int64_t{1} << 28;
// A longer list in an attribute is not believed.
constexpr std::int64_t kMostAttributeEntries = 1 << 16;

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

// The end of a sentence about something that could not be written.
std::string because() {
  const std::string reason = system_reason();
  return ": " + (reason.empty() ? "the HDF5 library does not say why" : reason);
}

Handle open_for_reading(const std::string& path) {
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_sec2(access.get());
  H5Pset_file_locking(access.get(), false, true);
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose};
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
  H5Sselect_hyperslab(space, H5S_SELECT_SET, sizes(start).data(), nullptr, sizes(count).data(), nullptr);
  return {H5Screate_simple(static_cast<int>(count.size()), sizes(count).data(), nullptr), H5Sclose};
}

Type float_type(std::size_t bytes) {
  switch (bytes) {
    case 2:
      return Type::fp16;
    case 4:
      return Type::fp32;
    case 8:
      return Type::fp64;
    default:
      return Type::other;
  }
}

void describe_type(hid_t type, DatasetInfo& info) {
  const std::string bits = std::to_string(8 * H5Tget_size(type)) + "-bit ";
  switch (H5Tget_class(type)) {
    case H5T_FLOAT:
      info.type = float_type(H5Tget_size(type));
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
std::vector<std::int64_t> chunk_grid(std::span<const std::int64_t> shape, std::span<const std::int64_t> chunk) {
  std::vector<std::int64_t> grid;
  for (std::size_t d = 0; d < shape.size(); ++d) grid.push_back(shape[d] / chunk[d] + (shape[d] % chunk[d] ? 1 : 0));
  return grid;
}

// Calls visit(start) for the place of every chunk, row-major over the grid of chunks.
template <class Visit>
void for_each_chunk(std::span<const std::int64_t> shape, std::span<const std::int64_t> chunk, const Visit& visit) {
  std::vector<hsize_t> start(shape.size());
  std::size_t d = start.size();
  do {
    visit(start);
    for (d = start.size(); d > 0; --d) {
      start[d - 1] += static_cast<hsize_t>(chunk[d - 1]);
      if (start[d - 1] < static_cast<hsize_t>(shape[d - 1])) break;
      start[d - 1] = 0;
    }
  } while (d > 0);
}

std::int64_t stored_chunks(const Handle& dataset) {
  const Handle space(H5Dget_space(dataset.get()), H5Sclose);
  hsize_t stored = 0;
  H5Dget_num_chunks(dataset.get(), space.get(), &stored);
  return static_cast<std::int64_t>(stored);
}

// `where` begins the message of an error; the file has `file_bytes`.
Layout layout_of(const std::string& where, const Handle& dataset, hid_t type, std::uint64_t file_bytes) {
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
    const hsize_t bytes = H5Dget_storage_size(dataset.get());
    ISOBAR_CHECK(offset <= file_bytes && bytes <= file_bytes - offset, where,
                 " is damaged: its values would end beyond ", "the file's ", file_bytes, " bytes");
    layout.kind = Layout::Kind::contiguous;
    layout.offset = offset;
  } else if (kind == H5D_CHUNKED) {
    const std::vector<std::int64_t> shape = shape_of(dataset);
    std::vector<hsize_t> chunk(shape.size());
    H5Pget_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
    layout.chunk.assign(chunk.begin(), chunk.end());
    ISOBAR_CHECK(std::ranges::none_of(chunk, [](hsize_t extent) { return extent == 0; }), where,
                 " is damaged: its chunks are empty");
    // A chunk that was never written reads as the fill value, which the library knows.
    if (product_of(chunk_grid(shape, layout.chunk)) == stored_chunks(dataset)) layout.kind = Layout::Kind::chunked;
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
  const auto bytes = product_of(std::array{static_cast<std::int64_t>(count), static_cast<std::int64_t>(width)});
  ISOBAR_CHECK(bytes && *bytes <= kMostTextBytes, where, ": ", count, " texts of ", width, " bytes are too many");
  std::string buffer(static_cast<std::size_t>(*bytes), '\0');
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

// A file that a dataset reads from, and how long it must be.
struct Source {
  std::string path;
  std::uint64_t bytes = 0;
};

std::optional<std::uint64_t> size_of(const std::string& path) {
  struct stat about = {};
  if (::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  return static_cast<std::uint64_t>(about.st_size);
}

// Whether a link has not led from `file` into another one.
bool lies_in(const Handle& file, const Handle& object) {
  H5O_info_t root{}, about{};
  return H5Oget_info2(file.get(), &root, H5O_INFO_BASIC) >= 0 &&
         H5Oget_info2(object.get(), &about, H5O_INFO_BASIC) >= 0 && root.fileno == about.fileno;
}

// The parts of an external dataset: files without structure, whose bytes follow one another.
std::vector<Source> external_sources(const std::string& where, hid_t creation, std::uint64_t needed) {
  std::vector<Source> sources;
  std::uint64_t held = 0;
  const int count = H5Pget_external_count(creation);
  for (int i = 0; i < count; ++i) {
    char name[4096] = "";
    off_t offset = 0;
    hsize_t bytes = 0;
    const bool told = H5Pget_external(creation, static_cast<unsigned>(i), sizeof name - 1, name, &offset, &bytes) >= 0;
    ISOBAR_CHECK(told && offset >= 0, where, " is damaged: its list of external files cannot be read");
    const std::optional<std::uint64_t> size = size_of(name);
    ISOBAR_CHECK(size, where, " lies in the file ", name, ", which cannot be found");
    const std::uint64_t begin = static_cast<std::uint64_t>(offset);
    const std::uint64_t wanted = std::min<std::uint64_t>(bytes, needed - std::min(held, needed));
    ISOBAR_CHECK(begin <= *size && wanted <= *size - begin, where, " lies in the file ", name,
                 ", which is truncated: ", wanted, " bytes from ", begin, " on are needed, it has ", *size);
    sources.push_back({name, begin + wanted});
    held += wanted;
  }
  ISOBAR_CHECK(held >= needed, where, " is damaged: its external files hold ", held, " of its ", needed, " bytes");
  return sources;
}

using NameReader = ssize_t (*)(hid_t creation, std::size_t index, char* name, std::size_t size);
std::string virtual_name(hid_t creation, std::size_t index, NameReader read) {
  const ssize_t length = read(creation, index, nullptr, 0);
  std::string name(static_cast<std::size_t>(std::max<ssize_t>(length, 0)) + 1, '\0');
  read(creation, index, name.data(), name.size());
  name.pop_back();
  return name;
}

// The files that a virtual dataset is put together from. What none of them holds the library makes up from the fill
// value, so every part must be there.
std::vector<Source> virtual_sources(const std::string& path, const std::string& where, hid_t creation,
                                    std::int64_t values) {
  std::vector<Source> sources;
  std::size_t count = 0;
  std::int64_t covered = 0;
  H5Pget_virtual_count(creation, &count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string file_name = virtual_name(creation, i, H5Pget_virtual_filename);
    const std::string dataset_name = virtual_name(creation, i, H5Pget_virtual_dsetname);
    const Handle part(H5Pget_virtual_vspace(creation, i), H5Sclose),
        from(H5Pget_virtual_srcspace(creation, i), H5Sclose);
    const hssize_t points = H5Sget_select_npoints(part.get());
    ISOBAR_CHECK(points >= 0 && file_name.find('%') == file_name.npos && dataset_name.find('%') == dataset_name.npos,
                 where, " is virtual without bounds, which isobar cannot check; make a copy of it with h5repack");
    covered += points;
    if (file_name == ".") continue;
    const std::filesystem::path beside = std::filesystem::path(path).parent_path() / file_name;
    const std::string source = size_of(beside.string()) ? beside.string() : file_name;
    const std::optional<std::uint64_t> size = size_of(source);
    ISOBAR_CHECK(size, where, " is virtual, and its source ", file_name, " cannot be found");
    const Handle file = open_for_reading(source);
    ISOBAR_CHECK(file, where, " is virtual, and its source ", source, " is a truncated or damaged HDF5 file");
    const Handle dataset(H5Dopen2(file.get(), dataset_name.c_str(), H5P_DEFAULT), H5Dclose);
    ISOBAR_CHECK(dataset && lies_in(file, dataset), where, " is virtual, and its source ", source, " has no dataset '",
                 dataset_name, "'");
    const std::vector<std::int64_t> shape = shape_of(dataset);
    std::vector<hsize_t> first(std::max<std::size_t>(shape.size(), 32)), last(first.size());
    const bool whole = H5Sget_select_type(from.get()) == H5S_SEL_ALL;
    bool fits = whole ? product_of(shape) == points
                      : H5Sget_simple_extent_ndims(from.get()) == static_cast<int>(shape.size()) &&
                            H5Sget_select_bounds(from.get(), first.data(), last.data()) >= 0;
    for (std::size_t d = 0; fits && !whole && d < shape.size(); ++d) fits = last[d] < static_cast<hsize_t>(shape[d]);
    ISOBAR_CHECK(fits, where, " is virtual, and '", dataset_name, "' in its source ", source, " is too small");
    sources.push_back({source, *size});
  }
  ISOBAR_CHECK(covered >= values, where, " is virtual, and its sources give ", covered, " of its ", values, " values");
  return sources;
}

// Every file but its own that an opened dataset reads from; an error where one is missing or too short, since the
// library makes up what it does not find.
std::vector<Source> sources_of(const std::string& path, const std::string& where, const Handle& dataset) {
  const Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose), type(H5Dget_type(dataset.get()), H5Tclose);
  const bool is_virtual = H5Pget_layout(creation.get()) == H5D_VIRTUAL;
  if (!is_virtual && H5Pget_external_count(creation.get()) <= 0) return {};
  const std::int64_t values = checked_product(shape_of(dataset), where);
  if (is_virtual) return virtual_sources(path, where, creation.get(), values);
  const std::int64_t bytes = checked_product({values, static_cast<std::int64_t>(H5Tget_size(type.get()))}, where);
  return external_sources(where, creation.get(), static_cast<std::uint64_t>(bytes));
}

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

// How many values a dataset beside the fields has, before memory is taken for them.
std::size_t bounded_count(const std::string& path, const std::string& dataset, std::span<const std::int64_t> shape) {
  const std::optional<std::int64_t> count = product_of(shape);
  ISOBAR_CHECK(count && *count <= kMostValues, path, ": '", dataset, "' has more than ", kMostValues,
               " values, the most that isobar reads of what lies beside the fields");
  return static_cast<std::size_t>(*count);
}

}  // namespace

struct File::Handles {
  Handle file;
  std::optional<Replacement> replacement;  // being written, until close(); nothing: open for reading
  mutable std::map<std::string, Handle> datasets;
  std::uint64_t bytes = 0;              // open for reading: the size of the file when it was opened
  mutable std::vector<Source> sources;  // other files that the datasets opened so far read from

  ~Handles() {
    const Lock lock;
    datasets.clear();
    file = Handle();
  }

  // The caller holds the lock, here and below.
  const Handle& dataset(const std::string& path, const std::string& name) const {
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

  // To be called after each read: what lies beyond the end of a file the library makes up as zeros.
  void check_length(const std::string& path) const {
    void* descriptor = nullptr;
    struct stat now = {};
    if (H5Fget_vfd_handle(file.get(), H5P_DEFAULT, &descriptor) >= 0 &&
        ::fstat(*static_cast<const int*>(descriptor), &now) == 0)
      check_length(path, static_cast<std::uint64_t>(now.st_size), bytes);
    for (const Source& source : sources) check_length(source.path, size_of(source.path).value_or(0), source.bytes);
  }
  static void check_length(const std::string& path, std::uint64_t now, std::uint64_t before) {
    ISOBAR_CHECK(now >= before, path, " is truncated: it was cut from ", before, " to ", now, " bytes while in use");
  }

  void create(const std::string& path, const std::string& name, hid_t type, std::span<const std::int64_t> shape,
              hid_t creation) {
    const Handle space(H5Screate_simple(static_cast<int>(shape.size()), sizes(shape).data(), nullptr), H5Sclose);
    Handle made(H5Dcreate2(file.get(), name.c_str(), type, space.get(), H5P_DEFAULT, creation, H5P_DEFAULT), H5Dclose);
    ISOBAR_CHECK(made, path, ": cannot create the dataset '", name, "'", because());
    datasets.emplace(name, std::move(made));
  }
};

namespace {

// Whether the library's last call that failed wanted more memory than there is.
bool lacked_memory() {
  bool lacked = false;
  const auto look = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->maj_num == H5E_RESOURCE) *static_cast<bool*>(out) = true;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look, &lacked);
  return lacked;
}

constexpr std::int64_t kMostChunksTried = 1 << 20;  // takes a second
constexpr std::int64_t kMostBytesWalked = 1 << 24;  // of a dataset or attribute that walk() reads whole

// Reads a small text or a small numeric object whole. False where memory was lacking.
bool walk_values(hid_t object, const Handle& space, const Handle& type,
                 herr_t (*read)(hid_t object, hid_t type, void* buffer)) {
  const H5T_class_t kind = H5Tget_class(type.get());
  const bool is_text = kind == H5T_STRING;
  if (!is_text && kind != H5T_INTEGER && kind != H5T_FLOAT) return true;
  const std::size_t width = is_text ? H5Tget_size(type.get()) : sizeof(double);
  const auto bytes = product_of(
      std::array<std::int64_t, 2>{H5Sget_simple_extent_npoints(space.get()), static_cast<std::int64_t>(width)});
  if (!bytes || *bytes > kMostBytesWalked) return true;
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

// Reads the first and the last value of a dataset where the library has to (all but what StepReader reads by itself).
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
    if (divides && stored <= kMostChunksTried && product_of(chunk_grid(shape, of_chunk)) == stored)
      for_each_chunk(shape, of_chunk, [&](const std::vector<hsize_t>& start) {
        hsize_t bytes = 0;
        H5Dget_chunk_storage_size(dataset.get(), start.data(), &bytes);
      });
  }
  const auto read = [](hid_t object, hid_t memory, void* buffer) {
    return H5Dread(object, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, buffer);
  };
  const int rank = H5Sget_simple_extent_ndims(space.get());
  return walk_attributes(dataset.get()) &&
         (rank <= 1 ? walk_values(dataset.get(), space, type, read) : walk_ends(dataset, space, type, creation));
}

// Asks the library for whatever isobar will ask it, of every dataset in the root group, to see whether it comes back:
// some damaged files crash it. Errors that it tells are met again by whoever asks. False where memory was lacking.
bool walk(const std::string& path) {
  const Handle file = open_for_reading(path);
  if (!file) return !lacked_memory();
  const auto visit = [](hid_t group, const char* name, const H5L_info_t*, void*) -> herr_t {
    const Handle dataset(H5Dopen2(group, name, H5P_DEFAULT), H5Dclose);
    if (!dataset) return lacked_memory() ? -1 : 0;
    return walk_dataset(dataset) ? 0 : -1;
  };
  return H5Literate(file.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, visit, nullptr) >= 0 || !lacked_memory();
}

std::vector<std::string> trial_command;  // empty: forks

std::optional<std::string> try_to_walk(const std::string& path) {
  if (trial_command.empty()) return trial([&] { return walk(path); });
  std::vector<std::string> command = trial_command;
  command.push_back(path);
  return trial(command);
}

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
               path, ": cannot write the dataset '", name, "'", because());
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
  if (const auto failure = try_to_walk(path))
    throw_error(path, " is damaged: the HDF5 library ", *failure, " when it reads its structure");
  result.handles_->file = open_for_reading(path);
  ISOBAR_CHECK(result.handles_->file, path, " is a truncated or damaged HDF5 file");
  result.handles_->bytes = size_of(path).value_or(0);
  return result;
}

void File::try_by(std::vector<std::string> command) {
  const Lock lock;
  trial_command = std::move(command);
}

void File::run_trial(const std::string& path) {
  isobar::run_trial([&] { return walk(path); });
}

File File::create(const std::string& path) {
  File result(replaced_by_writing(path).string());
  const Replacement& replacement = result.handles_->replacement.emplace(path);
  const Lock lock;
  // The library would lock the file that the replacement has locked already.
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access.get(), false, true);
  result.handles_->file =
      Handle(H5Fcreate(replacement.temporary().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
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

DatasetInfo File::info(const std::string& dataset) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const Handle type(H5Dget_type(handle.get()), H5Tclose);
  DatasetInfo info;
  info.shape = shape_of(handle);
  describe_type(type.get(), info);
  info.layout = layout_of(path_ + ": '" + dataset + "'", handle, type.get(), handles_->bytes);
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
  handles_->check_length(path_);
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

std::optional<std::string> File::attribute(const std::string& dataset, const std::string& name) const {
  std::vector<std::string> texts = attribute_list(dataset, name);
  ISOBAR_CHECK(texts.size() <= 1, path_, ": the attribute '", name, "' of '", dataset, "' holds ", texts.size(),
               " texts; expected one");
  return texts.empty() ? std::nullopt : std::optional(std::move(texts.front()));
}

std::vector<std::string> File::attribute_list(const std::string& dataset, const std::string& name) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  if (H5Aexists(handle.get(), name.c_str()) <= 0) return {};
  const Handle attribute(H5Aopen(handle.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  ISOBAR_CHECK(attribute, path_, ": the attribute '", name, "' of '", dataset, "' is damaged");
  const Handle type(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
  const std::int64_t count = H5Sget_simple_extent_npoints(space.get());
  if (H5Tget_class(type.get()) != H5T_STRING || count <= 0) return {};
  ISOBAR_CHECK(count <= kMostAttributeEntries, path_, ": the attribute '", name, "' of '", dataset, "' has ", count,
               " entries, which are too many");
  return read_text(path_ + ": '" + dataset + "'", attribute.get(), type.get(), static_cast<std::size_t>(count),
                   H5Aread);
}

std::vector<double> File::attribute_numbers(const std::string& dataset, const std::string& name) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  if (H5Aexists(handle.get(), name.c_str()) <= 0) return {};
  const Handle attribute(H5Aopen(handle.get(), name.c_str(), H5P_DEFAULT), H5Aclose);
  const std::string where = path_ + ": the attribute '" + name + "' of '" + dataset + "'";
  ISOBAR_CHECK(attribute, where, " is damaged");
  const Handle type(H5Aget_type(attribute.get()), H5Tclose), space(H5Aget_space(attribute.get()), H5Sclose);
  const std::int64_t count = H5Sget_simple_extent_npoints(space.get());
  const H5T_class_t kind = H5Tget_class(type.get());
  if ((kind != H5T_FLOAT && kind != H5T_INTEGER) || count <= 0) return {};
  ISOBAR_CHECK(count <= kMostAttributeEntries, where, " has ", count, " entries, which are too many");
  std::vector<double> values(static_cast<std::size_t>(count));
  ISOBAR_CHECK(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) >= 0, where, " cannot be read");
  return values;
}

std::vector<ChunkAddress> File::chunk_addresses(const std::string& dataset) const {
  const DatasetInfo about = info(dataset);
  const Lock lock;
  const Handle file = open_for_places(path_);
  ISOBAR_CHECK(file, path_, " cannot be opened once more: it is truncated, damaged or gone");
  const Handle handle(H5Dopen2(file.get(), dataset.c_str(), H5P_DEFAULT), H5Dclose);
  std::vector<ChunkAddress> addresses;
  std::vector<unsigned char> room;  // the library wants a buffer, and writes nothing there
  for_each_chunk(about.shape, about.layout.chunk, [&](const std::vector<hsize_t>& start) {
    hsize_t bytes = 0;
    std::uint32_t skipped = 0;
    const bool known = H5Dget_chunk_storage_size(handle.get(), start.data(), &bytes) >= 0 && bytes <= handles_->bytes;
    if (known && bytes > room.size()) room.resize(bytes);
    const bool found = known && H5Dread_chunk(handle.get(), H5P_DEFAULT, start.data(), &skipped, room.data()) >= 0;
    const Place place = take_place(file);
    const bool whole =
        place.bytes > 0 && place.bytes <= handles_->bytes && place.offset <= handles_->bytes - place.bytes;
    ISOBAR_CHECK(found && whole, path_, ": cannot find the chunks of '", dataset,
                 "': the file is truncated or damaged");
    addresses.push_back({place.offset, place.bytes, skipped});
  });
  return addresses;
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
               path_, ": cannot write the dataset '", dataset, "'", because());
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
               ": cannot write the dataset '", dataset, "'", because());
}

void File::write_dimensions(const std::string& dataset, std::span<const std::string> scales) {
  const Lock lock;
  const hid_t described = handles_->dataset(path_, dataset).get();
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const hid_t scale = handles_->dataset(path_, scales[i]).get();
    const bool made = H5DSis_scale(scale) > 0 || H5DSset_scale(scale, scales[i].c_str()) >= 0;
    ISOBAR_CHECK(made && H5DSattach_scale(described, scale, static_cast<unsigned>(i)) >= 0, path_, ": cannot make '",
                 scales[i], "' a dimension of '", dataset, "'", because());
  }
}

void File::write_attribute(const std::string& dataset, const std::string& name, const std::string& value) {
  const Lock lock;
  const Handle type = text_type(std::max<std::size_t>(value.size(), 1));
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(H5Acreate2(handles_->dataset(path_, dataset).get(), name.c_str(), type.get(), space.get(),
                                    H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  ISOBAR_CHECK(attribute && H5Awrite(attribute.get(), type.get(), value.c_str()) >= 0, path_,
               ": cannot write the attribute '", name, "' of '", dataset, "'", because());
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
               ": cannot write the attribute '", name, "' of '", dataset, "'", because());
}

void File::write_attribute(const std::string& dataset, const std::string& name, double value) {
  const Lock lock;
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(H5Acreate2(handles_->dataset(path_, dataset).get(), name.c_str(), H5T_IEEE_F64LE, space.get(),
                                    H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  ISOBAR_CHECK(attribute && H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, &value) >= 0, path_,
               ": cannot write the attribute '", name, "' of '", dataset, "'", because());
}

}  // namespace isobar::hdf5
