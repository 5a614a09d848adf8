// NetCDF-3 files: the classic format (CDF-1), with 64-bit offsets (CDF-2) and with 64-bit sizes (CDF-5), as the NetCDF
// file format specification describes them. Numbers are big-endian.
//
// Files are not trusted. Every Error names the file and the byte of the header at fault; no more memory is taken than a
// small multiple of the file's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/files/array_info.h"
#include "data/files/box_reader.h"

namespace isobar::netcdf3 {

// Whether a file's first bytes begin as NetCDF-3's do, of any version.
bool is_netcdf3(std::span<const std::byte> first_bytes);

struct Variable {
  ArrayInfo info;
  std::uint64_t begin = 0;   // of its first value in the file
  bool has_records = false;  // its first axis counts records, which lie one record of the file apart
};

class File {
 public:
  // Reads the header. Error if it is damaged, or if a variable reaches beyond the end of the file.
  static File open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<Variable>& variables() const { return variables_; }  // in the order of the file
  const Attributes& attributes() const { return attributes_; }           // of the file
  std::int64_t records() const { return records_; }
  std::int64_t record_bytes() const { return record_bytes_; }  // from one record to the next

 private:
  std::string path_;
  std::vector<Variable> variables_;
  Attributes attributes_;
  std::int64_t records_ = 0, record_bytes_ = 0;
};

// Reads boxes of one of the file's variables, by pread; the file need not outlive it. Error if it holds text.
std::unique_ptr<BoxReader> make_box_reader(const File& file, const Variable& variable,
                                           const BoxReaderOptions& options = {});

}  // namespace isobar::netcdf3
