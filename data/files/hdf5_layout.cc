#include "data/files/hdf5_layout.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <optional>

#include "data/files/chunks.h"
#include "data/files/hdf5_open_file.h"
#include "data/files/hdf5_places.h"
#include "kernels/common/check.h"
#include "kernels/common/checked_size.h"

namespace isobar::hdf5 {
namespace {

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

// IEEE fp16, which the library has no name for before 1.14.4.
Handle half_type(std::endian order) {
  Handle type(H5Tcopy(order == std::endian::little ? H5T_IEEE_F32LE : H5T_IEEE_F32BE), H5Tclose);
  H5Tset_fields(type.get(), 15, 10, 5, 0, 10);
  H5Tset_size(type.get(), 2);
  H5Tset_ebias(type.get(), 15);
  return type;
}

// The format of a type that is a plain number of a usual width, without unused bits.
std::optional<NumberFormat> format_of(hid_t type) {
  using Kind = NumberFormat::Kind;
  struct Known {
    Kind kind;
    std::size_t bytes;
    hid_t little, big;
  };
  const Handle little_half = half_type(std::endian::little), big_half = half_type(std::endian::big);
  const Known all[] = {{Kind::signed_integer, 1, H5T_STD_I8LE, H5T_STD_I8BE},
                       {Kind::signed_integer, 2, H5T_STD_I16LE, H5T_STD_I16BE},
                       {Kind::signed_integer, 4, H5T_STD_I32LE, H5T_STD_I32BE},
                       {Kind::signed_integer, 8, H5T_STD_I64LE, H5T_STD_I64BE},
                       {Kind::unsigned_integer, 1, H5T_STD_U8LE, H5T_STD_U8BE},
                       {Kind::unsigned_integer, 2, H5T_STD_U16LE, H5T_STD_U16BE},
                       {Kind::unsigned_integer, 4, H5T_STD_U32LE, H5T_STD_U32BE},
                       {Kind::unsigned_integer, 8, H5T_STD_U64LE, H5T_STD_U64BE},
                       {Kind::floating, 2, little_half.get(), big_half.get()},
                       {Kind::floating, 4, H5T_IEEE_F32LE, H5T_IEEE_F32BE},
                       {Kind::floating, 8, H5T_IEEE_F64LE, H5T_IEEE_F64BE}};
  for (const Known& known : all) {
    if (H5Tequal(type, known.little) > 0) return NumberFormat{known.kind, known.bytes, std::endian::little};
    if (H5Tequal(type, known.big) > 0) return NumberFormat{known.kind, known.bytes, std::endian::big};
  }
  return std::nullopt;
}

void describe_type(hid_t type, DatasetInfo& info) {
  info.format = format_of(type);
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

}  // namespace

void check_filters(const std::string& where, const Layout& layout) {
  ISOBAR_CHECK(layout.missing_filter.empty(), where, " is compressed with '", layout.missing_filter,
               "', which this build of HDF5 cannot undo");
}

std::int64_t stored_chunks(const Handle& dataset) {
  const Handle space(H5Dget_space(dataset.get()), H5Sclose);
  hsize_t stored = 0;
  H5Dget_num_chunks(dataset.get(), space.get(), &stored);
  return static_cast<std::int64_t>(stored);
}

Layout layout_of(const std::string& where, const Handle& dataset, std::uint64_t file_bytes) {
  const Handle creation(H5Dget_create_plist(dataset.get()), H5Pclose);
  Layout layout;
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

DatasetInfo File::info(const std::string& dataset) const {
  const Lock lock;
  const Handle& handle = handles_->dataset(path_, dataset);
  const Handle type(H5Dget_type(handle.get()), H5Tclose);
  DatasetInfo info;
  info.shape = shape_of(handle);
  describe_type(type.get(), info);
  info.layout = layout_of(path_ + ": '" + dataset + "'", handle, handles_->bytes);
  return info;
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

}  // namespace isobar::hdf5
