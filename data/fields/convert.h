// Copies fields of any sources to yearly HDF5 files in the layout that is read fastest: contiguous `fields` in fp32,
// with `lat`, `lon`, `channel`, `units` and `time` beside them. docs/data.md describes the command.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace isobar {

struct ConvertOptions {
  std::vector<std::string> sources = {};   // as FieldSeriesOptions::paths
  std::string out = {};                    // folder; created if needed
  std::vector<std::string> channels = {};  // as of ChosenPlanes (data/fields/chosen_planes.h), in this order
  // At most two dates, ascending. Steps before the first go to out/train, steps from it on to out/valid, and those from
  // the second on to out/test. None: all go to out.
  std::vector<std::string> split = {};
  bool allow_missing = false;  // holes are written as NaN; else they are an Error
  int threads = 0;             // 0: as many as the machine has cores; the bytes do not depend on it
  // Steps are flushed to the disk after so many bytes, or a sixteenth of a file if that is less.
  std::int64_t flush_bytes = std::int64_t{256} << 20;
};

// Writes out/YYYY.h5 or out/{train,valid,test}/YYYY.h5, a file for each year that has steps. Calls tell(line) with what
// will be written, before anything is, and then for each file.
//
// A file has a hidden name until it is complete. If the process is killed, the same call goes on, and the result has
// the same bytes; threads, allow_missing and flush_bytes may differ. A file that is there already is kept if it is what
// would be written: shape, labels, times, and the values of the first, the middle and the last step.
//
// Error, before anything is written, if a source has no `time`; if a file that is there is another one; if an output is
// a source; if the disk has no room; if another process writes to `out`. Later, for holes and for a full disk.
void convert_fields(const ConvertOptions& options, const std::function<void(const std::string&)>& tell);

}  // namespace isobar
