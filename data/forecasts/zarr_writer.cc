#include "data/forecasts/zarr_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "data/files/codecs.h"
#include "data/files/shuffle.h"
#include "engine/files/descriptor.h"
#include "engine/files/folders.h"
#include "engine/files/system_error.h"
#include "kernels/common/check.h"

namespace isobar {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "chunks are written with the byte order of the machine");

// "0.3.0.0": the chunk that begins at `place`; its extents are those of a field.
std::string chunk_name(const std::vector<std::int64_t>& place) {
  std::string name;
  for (const std::int64_t index : place) name += concat(name.empty() ? "" : ".", index);
  return name;
}

// A chunk is a field, [LAT, LON] of a start, a lead and a level; it lies in a file of its own. A chunk of a level that
// a variable does not have is not written: it reads as NaN.
class ZarrWriter : public ForecastWriter {
 public:
  ZarrWriter(const fs::path& path, CfLayout layout, bool compress)
      : folder_(path), layout_(std::move(layout)), compress_(compress) {
    add_metadata("", ".zgroup", {{"zarr_format", 2}});
    add_metadata("", ".zattrs", to_json(layout_.attributes));
    for (const CfAxis& axis : layout_.axes) write_axis(axis);
    for (const CfVariable& variable : layout_.variables) {
      describe(variable.name, layout_.shape(variable), layout_.extents(variable), "<f4", "NaN",
               layout_.dimensions(variable), variable.attributes);
    }
  }

  void put(std::int64_t start, std::int64_t lead, std::span<const float> fields) override {
    for (const CfVariable& variable : layout_.variables) {
      const std::vector<std::int64_t> extents = layout_.extents(variable);
      const auto pixels = static_cast<std::size_t>(extents.end()[-2] * extents.back());
      for (std::size_t level = 0; level < variable.channels.size(); ++level) {
        if (variable.channels[level] < 0) continue;
        const auto place = layout_.place(variable, start, lead, static_cast<std::int64_t>(level));
        write_chunk(variable.name, chunk_name(place),
                    fields.subspan(static_cast<std::size_t>(variable.channels[level]) * pixels, pixels));
      }
    }
  }

  // The consolidated metadata come last.
  void close() override {
    const ordered_json consolidated{{"zarr_consolidated_format", 1}, {"metadata", metadata_}};
    write(".zmetadata", consolidated.dump(1));
    folder_.put_in_place();
  }

 private:
  static ordered_json to_json(const CfAttributes& attributes) {
    ordered_json json = ordered_json::object();
    for (const auto& [key, text] : attributes)
      if (!text.empty()) json[key] = text;
    return json;
  }

  void add_metadata(const std::string& array, const char* file, ordered_json json) {
    const std::string name = array.empty() ? file : array + "/" + file;
    write(name, json.dump(1));
    metadata_[name] = std::move(json);
  }

  // Makes the folder of an array.
  void describe(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& chunk,
                const char* type, const ordered_json& fill, const std::vector<std::string>& dimensions,
                const CfAttributes& attributes) {
    fs::create_directory(folder_.temporary() / name);
    const bool is_compressed = compress_ && shape.size() > 1;
    ordered_json zarray{{"zarr_format", 2}, {"shape", shape},     {"chunks", chunk},       {"dtype", type},
                        {"order", "C"},     {"fill_value", fill}, {"compressor", nullptr}, {"filters", nullptr}};
    if (is_compressed) {
      zarray["compressor"] = {{"id", "zlib"}, {"level", kLevel}};
      zarray["filters"] = ordered_json::array({{{"id", "shuffle"}, {"elementsize", sizeof(float)}}});
    }
    add_metadata(name, ".zarray", zarray);
    ordered_json zattrs = to_json(attributes);
    zattrs["_ARRAY_DIMENSIONS"] = dimensions;
    add_metadata(name, ".zattrs", zattrs);
  }

  void write_axis(const CfAxis& axis) {
    const std::vector<std::int64_t> shape{std::ssize(axis.values)};
    describe(axis.name, shape, shape, axis.are_whole ? "<i4" : "<f8", nullptr, {axis.name}, axis.attributes);
    const std::vector<std::int32_t> whole(axis.values.begin(), axis.values.end());
    const auto bytes = axis.are_whole ? std::as_bytes(std::span(whole)) : std::as_bytes(std::span(axis.values));
    write(axis.name + "/0", bytes);
  }

  void write_chunk(const std::string& array, const std::string& chunk, std::span<const float> field) {
    const std::span<const std::byte> bytes = std::as_bytes(field);
    if (!compress_) return write(array + "/" + chunk, bytes);
    shuffle(bytes, sizeof(float), shuffled_);
    write(array + "/" + chunk, zlib_compressed(shuffled_, kLevel));
  }

  void write(const std::string& name, const std::string& text) { write(name, std::as_bytes(std::span(text))); }

  void write(const std::string& name, std::span<const std::byte> bytes) {
    const fs::path file = folder_.temporary() / name;
    const Descriptor opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    while (opened && !bytes.empty()) {
      const ssize_t written = ::write(opened.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) break;
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
    if (!opened || !bytes.empty()) fail_with_errno(folder_.path(), "written");
  }

  static constexpr int kLevel = 1;

  FolderReplacement folder_;
  const CfLayout layout_;
  const bool compress_;
  ordered_json metadata_ = ordered_json::object();
  std::vector<std::byte> shuffled_;
};

}  // namespace

std::unique_ptr<ForecastWriter> make_zarr_writer(const fs::path& path, CfLayout layout, bool compress) {
  return std::make_unique<ZarrWriter>(path, std::move(layout), compress);
}

}  // namespace isobar
