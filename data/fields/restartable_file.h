// A file of fields that is written step by step, by several threads, and goes on after its writer was killed.
//
// DIR/2018.h5 is written as DIR/.2018.h5.partial. Its labels and the place of `fields` in it are fixed when it is made;
// steps are then written at their place, without the HDF5 library. The journal DIR/.2018.h5.done says which steps are
// on the disk, and what the file is made from. Order of events, of which a kill may prevent any:
//
//   1. an older journal without its file is removed;  2. the partial file is put in place, complete but for the steps
//   3. the journal is put in place, with no step;     4. steps are written and flushed to the disk, then recorded
//   5. the file is renamed to its final name;         6. the journal is removed
//
// So every step of the journal is on the disk, and steps that are not in it are written again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/fields/field_facts.h"
#include "data/fields/field_series.h"
#include "engine/files/descriptor.h"

namespace isobar {

class RestartableFile {
 public:
  // facts: shape and labels of the file `path`; its folder must exist, and no other process may write there. made_from:
  // an object, of everything that decides the values. Goes on with the work that was left unfinished, if there is any.
  // Error naming the journal and the key if that work was made from something else, and if the disk has no room.
  RestartableFile(std::filesystem::path path, FieldFacts facts, nlohmann::json made_from);

  const std::filesystem::path& path() const { return path_; }
  // The bytes of disk that unfinished work for `path` occupies; 0 if there is none.
  static std::uintmax_t occupied_bytes(const std::filesystem::path& path);
  // Removes what unfinished work for `path` has left.
  static void remove_unfinished(const std::filesystem::path& path);

  std::vector<StepRange> missing() const;  // the ranges of steps that are not recorded, in order

  // fields: [V, LAT, LON]. Thread-safe for different steps.
  void write(std::int64_t step, const float* fields);
  // Flushes the file to the disk and records that these steps are written.
  void record(StepRange steps);
  // Gives the file its name. All steps must be recorded.
  void finish();

 private:
  void begin();
  void read_journal();
  void write_journal() const;
  void open();
  void reserve_room() const;

  const std::filesystem::path path_;
  const FieldFacts facts_;
  const nlohmann::json made_from_;
  std::vector<StepRange> done_;  // in order, without neighbours
  std::uint64_t offset_ = 0;     // of `fields`
  std::int64_t step_bytes_ = 0;
  Descriptor file_;
};

}  // namespace isobar
