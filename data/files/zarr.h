// Zarr stores, versions 2 and 3: a folder with a folder for each group and array, and a file for each chunk (or for
// each shard, which holds several).
//
// Stores are not trusted. Every Error names the file at fault. Memory for a chunk is taken once it is known that its
// file can hold it (data/files/codecs.h), and none is taken for a chunk that does not exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/files/array_info.h"
#include "data/files/box_reader.h"
#include "data/files/codecs.h"

namespace isobar::zarr {

// What a chunk means that does not exist. Writers leave out chunks that hold nothing but the fill value, and a copy of
// a store that was broken off looks the same.
enum class MissingChunk : std::uint8_t {
  error,
  nan_or_error,  // NaN where that is the fill value, else an error: NaN is a hole in the data in any case
  fill_value
};

// Files that hold several chunks each.
struct Shards {
  std::vector<std::int64_t> shape;  // of a shard; a multiple of the chunk's
  bool index_first = false;         // whether the index of its chunks lies before them, not behind
  bool index_has_checksum = false;
};

struct Array {
  ArrayInfo info;
  std::filesystem::path folder;
  std::vector<std::int64_t> chunk;
  std::vector<std::size_t> order;  // of the axes within a chunk, slowest first; empty: row-major
  std::vector<Codec> codecs;       // in the order they were applied in
  std::optional<Shards> shards;
  std::optional<double> fill_value;  // nothing: not told, or no number
  std::string separator = ".";       // between the numbers in a chunk's name
  bool has_prefix = false;           // whether these names begin with "c"
  // Why its numbers cannot be read, to follow its name in a sentence; empty: they can.
  std::string refusal;
};

// Whether a folder holds a store's metadata, of a group or of a single array.
bool is_store(const std::filesystem::path& folder);

class Store {
 public:
  // Reads the metadata of all groups and arrays; the consolidated one where it exists. A folder of a single array is a
  // store with one array, named as the folder. Error if metadata are missing, damaged or of another version.
  static Store open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<Array>& arrays() const { return arrays_; }  // sorted by name
  const Attributes& attributes() const { return attributes_; }  // of the root group

 private:
  std::filesystem::path path_;
  std::vector<Array> arrays_;
  Attributes attributes_;
};

// Reads boxes of an array; the store need not outlive the reader. Threads that read at the same time decode at the same
// time. Error if it holds no numbers, or if its chunks have codecs that isobar, or this build of it, cannot undo.
std::unique_ptr<BoxReader> make_box_reader(const Store& store, const Array& array, const BoxReaderOptions& options = {},
                                           MissingChunk missing = MissingChunk::error);

}  // namespace isobar::zarr
