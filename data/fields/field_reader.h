// Reads the fields of one file, or of one store, whatever its format.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_facts.h"
#include "data/files/box_reader.h"

namespace isobar {

// Rows [row, row + height) and columns [0, width) of a grid.
struct FieldCrop {
  std::int64_t row = 0, height = 0, width = 0;
};

// refused: an Error. kept: they become NaN. refused_but_chunks: an Error, but chunks of a Zarr store that do not exist
// hold its fill value, as Zarr says.
enum class MissingPoints : std::uint8_t { refused, kept, refused_but_chunks };

// A channel of a step, and where its field goes.
struct Plane {
  std::int64_t channel = 0;  // by its number in the file
  float* to = nullptr;       // [crop.height, crop.width]
  MissingPoints missing = MissingPoints::refused;
};

// Which steps hold preliminary data, by ECMWF's `expver` (data/fields/experiments.h). steps: [steps], 1 for a
// preliminary one; empty if the file does not tell. is_unread: it has an expver, whose text isobar does not read.
struct PreliminaryData {
  std::vector<std::uint8_t> steps = {};
  bool is_unread = false;
};

class FieldReader {
 public:
  virtual ~FieldReader() = default;

  // The fields of a step, as FieldFacts describes them. A value that the format declares missing is NaN, or a fill
  // value that FieldFacts lists. Thread-safe.
  virtual void read(std::int64_t step, std::span<const Plane> planes, FieldCrop crop) = 0;
  // How the file is read, for `isobar data info`: "contiguous, pread"; and the shape of its chunks, empty if it has
  // none.
  virtual std::string name() const = 0;
  virtual std::vector<std::int64_t> chunk() const { return {}; }
  // Where `expver` is an axis, a step is preliminary if a variable has preliminary values at it and no final one. So a
  // row of each step is read then, and all of preliminary ones.
  virtual PreliminaryData preliminary() { return {}; }
};

// An opened file of fields.
struct OpenedFields {
  FieldFacts facts;
  std::unique_ptr<FieldReader> reader;
};

// The format is known by the first bytes. Error naming the file if it has none that can be read, or no fields.
OpenedFields open_fields(const std::string& path, const CacheBudget& budget);

}  // namespace isobar
