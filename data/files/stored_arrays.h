// INTERIM
#pragma once
#include <memory>
#include <string>
#include <vector>
#include "data/files/array_info.h"
#include "data/files/box_reader.h"
namespace isobar {
class StoredArrays {
 public:
  virtual ~StoredArrays() = default;
  virtual const std::string& path() const = 0;
  virtual const char* format() const = 0;
  virtual const std::vector<ArrayInfo>& arrays() const = 0;
  virtual std::unique_ptr<BoxReader> open(const std::string& name, const BoxReaderOptions& options) const = 0;
};
bool is_stored_arrays(const std::string& path);
std::shared_ptr<const StoredArrays> open_stored_arrays(const std::string& path);
}  // namespace isobar
