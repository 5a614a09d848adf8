// HDF5 files as this project meets them. hdf5*.cc alone include the library's header.
//
// The library has one global lock, so everything here may be called from any thread and runs one call at a time. What
// should run in parallel (data/files/box_reader.h) asks only for the layout and the raw chunks, and does the rest
// itself. Every failure is one isobar::Error that names the file; the library's own error printing is silenced.
//
// Files are not trusted. open() lets a child process read the structure first, since some damaged files crash the
// library. Opening a dataset refuses what a link leads to in another file, and external and virtual datasets of which a
// part is missing; every read is followed by a look at the length of the files, since the library reads zeros beyond
// the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/files/array_info.h"
#include "data/files/number_format.h"

namespace isobar::hdf5 {

enum class Type : std::uint8_t { fp16, fp32, fp64, integer, text, other };
enum class Filter : std::uint8_t { shuffle, deflate, other };

// How a dataset lies in its file.
struct Layout {
  // other: compact, external, virtual, or with parts that were never written.
  enum class Kind : std::uint8_t { contiguous, chunked, other } kind = Kind::other;
  std::uint64_t offset = 0;         // contiguous: of the first byte in the file
  std::vector<std::int64_t> chunk;  // chunked: its shape, one extent a dimension
  std::vector<Filter> filters;      // chunked: in the order they were applied when writing
  std::string missing_filter;       // the name of a filter that this build of the library cannot undo; else empty
};

std::string library_version();  // "1.10.8"

// Error if the dataset is compressed with what this build of the library cannot undo. `where` begins the message.
void check_filters(const std::string& where, const Layout& layout);

struct DatasetInfo {
  std::vector<std::int64_t> shape;
  Type type = Type::other;
  std::string type_name;  // for messages: "32-bit float", "16-bit integer", "text", ...
  // How its numbers lie in the file; nothing for what is no number, and for numbers that only the library converts.
  std::optional<NumberFormat> format;
  Layout layout;
};

struct ChunkAddress {
  std::uint64_t offset = 0, bytes = 0;  // in the file
  std::uint32_t skipped_filters = 0;    // bit i: filter i was not applied to this chunk
};

// How a dataset is laid out in a file that is written.
struct Storage {
  std::vector<std::int64_t> chunk = {};  // empty: contiguous
  bool shuffle = false;
  bool checksum = false;  // Fletcher32
  int deflate = 0;        // 1 (fast) to 9 (small); 0: no compression
};

// What else a file that is written can be opened by. netcdf: by netCDF-4, also to append to it. Links and attributes
// are then kept in the order of their creation, and dimensions have the numbers by which netCDF knows them.
enum class Style : std::uint8_t { plain, netcdf };

// When a contiguous dataset gets its room in the file: when it is created, so that a disk without enough room is an
// Error then, or when its first values are written, as those of File::write do.
enum class Room : std::uint8_t { at_once, when_written };

class File {
 public:
  static File open(const std::string& path);                                // read-only, without locking the file
  static File create(const std::string& path, Style style = Style::plain);  // replaces what is there
  // From now on open() tries a file by this command and the file's path, whose program calls run_trial below; before,
  // and where the command is empty, in a fork of this process.
  static void try_by(std::vector<std::string> command);
  [[noreturn]] static void run_trial(const std::string& path);

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  // Whether there is something of this name; opening it may still fail.
  bool has(const std::string& dataset) const;
  std::vector<std::string> names() const;  // of what is in the root group, sorted
  DatasetInfo info(const std::string& dataset) const;

  // A box of a dataset, converted to fp32 or fp64. `start` and `count` have one entry a dimension.
  void read(const std::string& dataset, std::span<const std::int64_t> start, std::span<const std::int64_t> count,
            float* out) const;
  void read(const std::string& dataset, std::span<const std::int64_t> start, std::span<const std::int64_t> count,
            double* out) const;
  // A whole numeric dataset, and a whole text dataset of fixed or variable length; an error, before memory is taken,
  // where it has more than 2^24 values or 2^28 bytes of text.
  std::vector<double> numbers(const std::string& dataset) const;
  std::vector<std::string> strings(const std::string& dataset) const;
  // A text; nothing where it is no text, an error where it is a list.
  std::optional<std::string> attribute(const std::string& dataset, const std::string& name) const;
  // Every text of an attribute that may be a list; empty where there is none, or where it is no text.
  std::vector<std::string> attribute_list(const std::string& dataset, const std::string& name) const;

  // Every number of an attribute; empty where there is none, or where it holds no numbers.
  std::vector<double> attribute_numbers(const std::string& dataset, const std::string& name) const;

  // All datasets, those within groups too ("group/t"), sorted. Links into other files, and dimensions that netCDF
  // writes without values, are left out.
  std::vector<std::string> datasets() const;
  // Of a dataset, or of the root group where `dataset` is empty; without what the library and netCDF note for
  // themselves, and without attributes that are neither texts nor numbers.
  Attributes attributes(const std::string& dataset) const;
  // Of the axes, by the scales that are attached to them; "" where an axis has none. Empty where none has any.
  std::vector<std::string> dimension_names(const std::string& dataset) const;

  // Where all chunks of a chunked dataset lie, row-major over the grid of chunks. An error where one is missing or ends
  // beyond the file. It takes one or two microseconds a chunk.
  std::vector<ChunkAddress> chunk_addresses(const std::string& dataset) const;

  // Creates a dataset and writes all of it.
  void write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const float> values,
             const Storage& storage = {});
  void write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const double> values,
             const Storage& storage = {});
  void write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const std::int64_t> values,
             const Storage& storage = {});
  void write(const std::string& dataset, std::span<const std::int64_t> shape, std::span<const std::int32_t> values,
             const Storage& storage = {});
  void write(const std::string& dataset, std::span<const std::string> values);
  // Creates a contiguous fp32 dataset with room for `shape` and no values yet; write_box fills it piece by piece.
  void reserve(const std::string& dataset, std::span<const std::int64_t> shape, Room room = Room::at_once);
  // The same in chunks. One that is never written takes no room and reads as NaN; write_box should write whole chunks,
  // since none is kept in memory.
  void reserve(const std::string& dataset, std::span<const std::int64_t> shape, const Storage& storage);
  void write_box(const std::string& dataset, std::span<const std::int64_t> start, std::span<const std::int64_t> count,
                 const float* values);
  // Attributes of a dataset, or of the file where `dataset` is empty. fp32: a list of one number, as netCDF writes it.
  void write_attribute(const std::string& dataset, const std::string& name, const std::string& value);
  void write_attribute(const std::string& dataset, const std::string& name, std::span<const std::string> values);
  void write_attribute(const std::string& dataset, const std::string& name, double value);
  void write_attribute(const std::string& dataset, const std::string& name, float value);
  // Makes a dataset of one dimension a dimension's scale, of its own name.
  void make_dimension(const std::string& dataset);
  // Says what a dataset's dimensions are: one dataset for each, of one dimension and as many values. They become HDF5's
  // dimension scales, which netCDF and xarray read as named dimensions with coordinates.
  void write_dimensions(const std::string& dataset, std::span<const std::string> scales);

  // Writes what is buffered and closes; an error is told here, not lost in the destructor.
  void close();

 private:
  struct Handles;
  explicit File(const std::string& path);
  std::string path_;
  std::unique_ptr<Handles> handles_;
};

}  // namespace isobar::hdf5
